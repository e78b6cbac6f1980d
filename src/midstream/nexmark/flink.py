"""NEXMark in Flink: events as the files it reads, and a process that runs a query on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from midstream.errors import MidstreamError
from midstream.nexmark import flinkjob
from midstream.nexmark.events import CYCLE, Nexmark
from midstream.nexmark.flinkqueries import FLINK, TABLES

PARALLELISM = 2
_BLOCK = CYCLE * 1000
"""Events that go to one file before the next one gets as many."""

_TYPES = {"VARCHAR": "STRING", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP(6)", "TIMESTAMP": "TIMESTAMP(6)"}
_CONFIGURATION = {
    "parallelism.default": str(PARALLELISM),
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "1 s",
    "table.local-time-zone": "UTC",
}


def python_with_flink() -> Path | None:
    """A Python that has PyFlink: the one `MIDSTREAM_FLINK_PYTHON` names, or this one; None when there is none."""
    given = os.environ.get("MIDSTREAM_FLINK_PYTHON")
    if given is not None:
        return Path(given)
    return Path(sys.executable) if find_spec("pyflink") is not None else None


def write_csv(directory: Path, stream: Nexmark, events: int) -> None:
    """Write events by table, in as many files as are read at once, each in the order of time. (What PyPI has of Flink
    reads no Parquet.)"""
    for table, columns in TABLES.items():
        (directory / table).mkdir(parents=True)
        names = [column.split()[0] for column in columns.split(", ")]
        files = [pa.OSFile(str(directory / table / f"{part}.csv"), "wb") for part in range(PARALLELISM)]
        for number, first in enumerate(range(0, events, _BLOCK)):
            rows = stream.table(table, first, min(first + _BLOCK, events)).select(names)
            options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")
            pa.csv.write_csv(_without_zones(rows), files[number % PARALLELISM], options)
        for file in files:
            file.close()


def _without_zones(rows: pa.Table) -> pa.Table:
    kinds = [pa.field(f.name, pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type) for f in rows.schema]
    return rows.cast(pa.schema(kinds))


def run_query(
    python: Path, name: str, columns: list[tuple[str, str]], inputs: list[Path], outputs: list[Path]
) -> list[float]:
    """Run a query on each of some inputs, one after the other in one process; how many seconds each took. `columns` are
    those of the result, with their types in DuckDB."""
    spelled = ", ".join(f"{column} {_TYPES.get(kind, kind)}" for column, kind in columns)
    place = outputs[0].parent
    checkpoints = {"execution.checkpointing.dir": f"file://{place}/checkpoints"}
    jobs = [
        {
            "tables": dict(TABLES),
            "configuration": {**_CONFIGURATION, **checkpoints},
            "columns": spelled,
            "sql": FLINK[name],
            "input": str(read),
            "output": str(written),
        }
        for read, written in zip(inputs, outputs, strict=True)
    ]
    place.mkdir(parents=True, exist_ok=True)
    described, told = place / "job.json", place / "seconds.json"
    described.write_text(json.dumps({"jobs": jobs, "told": str(told)}))
    command = [str(python), str(Path(flinkjob.__file__)), str(described)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise MidstreamError(
            "FLINK_FAILED",
            f"{name} does not run in Flink: {_reason(ended.stderr)}",
            hint="leave Flink out with --no-flink, or name a Python that has apache-flink in MIDSTREAM_FLINK_PYTHON.",
        )
    seconds: list[float] = json.loads(told.read_text())
    return seconds


def _reason(output: str) -> str:
    """What a process that failed has to say, without the places it went through."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if "Exception" in line or "Error" in line] or lines[-3:]
    return " | ".join(told[-6:])[:2000]
