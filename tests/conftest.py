from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

# Machines are noisy: a slow example is no failure.
settings.register_profile("midstream", deadline=None)
settings.load_profile("midstream")

pytest_plugins = ["tests.servers"]

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Drivers of tests, also those in processes of their own, live for seconds or minutes: what Java's second compiler would
# win never comes back.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)

REMOTE = os.environ.get("MIDSTREAM_TEST_REMOTE")
"""`sc://host:port` or `local[2]`: tests that only use the public API run on Spark Connect then, too."""

LONGEST_FIRST = (
    "cluster/test_chaos.py",
    "recovery/test_tasks.py",
    "recovery/test_kill.py",
    "engine/test_keys.py",
    "cluster/test_relocation.py",
    "connect/test_connect.py",
    "modify/test_random.py",
    "test_docs.py",
    "eventtime/test_joins.py",
    "cli/test_commands.py",
)
"""Files that take the longest. Processes share the files: who gets one of these last works on alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ranks = {here / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark of a test run, small and silent."""
    # Workers run in the environment of the tests also when pytest is called without make.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if REMOTE:
        yield SparkSession.builder.remote(REMOTE).getOrCreate()
        return
    session = (
        SparkSession.builder.master("local[2]")
        .appName("midstream-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
