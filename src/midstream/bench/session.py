"""The Spark sessions of a benchmark: a fresh JVM for each, so that no contender inherits another's heap."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from midstream.errors import MidstreamError

CORES = 2
"""Tasks at a time, shuffle partitions and parallelism of every contender."""


@contextmanager
def work_directory(parent: Path | None = None) -> Iterator[Path]:
    """A new directory below `parent` (default: the system's temporary one), removed afterwards."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="midstream-", dir=parent)).resolve()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def spark_session(
    directory: Path, *, driver_memory: str = "10g", conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A local session in its own JVM, which ends with the block. What the JVM prints goes to `spark.log`."""
    if SparkContext._active_spark_context is not None:
        raise MidstreamError(
            "SESSION_ACTIVE",
            "A Spark session is already running in this process, and a benchmark starts its own.",
            hint="stop it with spark.stop(), or run the command in a new process.",
        )
    # Workers must be the same Python with the same packages, whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("midstream")
    for name, value in (_settings(directory, driver_memory) | dict(conf or {})).items():
        builder = builder.config(name, value)
    interrupt = signal.getsignal(signal.SIGINT)
    with _output_to(directory / "spark.log"):
        spark = builder.getOrCreate()
    # PySpark's own handler cancels all jobs on Ctrl-C, and with them the epoch that is to end well.
    signal.signal(signal.SIGINT, interrupt)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
        _end_jvm()


def _settings(directory: Path, driver_memory: str) -> dict[str, str]:
    return {
        "spark.driver.memory": driver_memory,
        "spark.driver.maxResultSize": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": str(CORES),
        # All epochs of a run stay readable: percentiles are taken from them.
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
    }


@contextmanager
def _output_to(file: Path) -> Iterator[None]:
    """Processes started in the block write to `file` in place of the terminal, which shows the progress."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    with file.open("ab") as target:
        os.dup2(target.fileno(), 1)
        os.dup2(target.fileno(), 2)
    try:
        yield
    finally:
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)


def _end_jvm() -> None:
    """Let the next session start a JVM of its own: PySpark keeps one for the life of the process."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait(timeout=60)
    SparkContext._gateway = None
    SparkContext._jvm = None
