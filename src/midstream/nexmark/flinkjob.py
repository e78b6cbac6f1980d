"""A process of its own that runs one query in Flink: `python flinkjob.py JOB.json`, in an environment that has PyFlink.

It imports nothing of midstream: PyFlink and PySpark want different versions of what they share. How many seconds each
job took is written to the file that is named there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def run(job: dict[str, Any]) -> float:
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    configuration = Configuration()
    for key, value in job["configuration"].items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for name, columns in job["tables"].items():
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}, ts AS CAST(date_time AS TIMESTAMP(3)), WATERMARK FOR ts AS ts) WITH "
            f"('connector' = 'filesystem', 'path' = '{job['input']}/{name}', 'format' = 'csv')"
        )
    tables.execute_sql(
        f"CREATE TABLE query_rows ({job['columns']}) WITH "
        f"('connector' = 'filesystem', 'path' = '{job['output']}', 'format' = 'csv')"
    )
    began = time.perf_counter()
    tables.execute_sql(f"INSERT INTO query_rows {job['sql']}").wait()
    return time.perf_counter() - began


if __name__ == "__main__":
    described = json.loads(Path(sys.argv[1]).read_text())
    seconds = [run(job) for job in described["jobs"]]
    Path(described["told"]).write_text(json.dumps(seconds))
