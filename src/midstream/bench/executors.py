"""Executors for a benchmark: processes of their own on this machine, each with a cache of its own."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import midstream as ms
from midstream.bench.environment import Environment

START_SECONDS = 120.0


@contextmanager
def executors(
    environment: Environment, name: str, count: int, megabytes: int = 1024
) -> Iterator[tuple[SparkSession, Path]]:
    """A session with so many executors of one core, which have nothing: what they fetch goes with them."""
    caches = environment.directory / f"caches-{name}"
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    conf = {
        "spark.master": f"local-cluster[{count},1,{megabytes}]",
        "spark.executor.memory": f"{megabytes}m",
        "spark.executorEnv.MIDSTREAM_CACHE_DIR": f"{caches}/{{executor}}",
        "spark.executorEnv.PYTHONPATH": str(Path(ms.__file__).parents[1]),
        # Each stage of each epoch broadcasts its code, in buffers of this size (4 MB unless set). Java's collector
        # makes large ones a case of their own, and collected garbage nearly every epoch for them.
        "spark.broadcast.blockSize": "512k",
        # A task is to wait for its executor, however busy the machine is.
        "spark.locality.wait": "60s",
    }
    try:
        with environment.session(name, conf) as (spark, directory), driver_cache(caches / "driver"):
            tracker = spark.sparkContext._jsc.sc().statusStore()
            deadline = time.monotonic() + START_SECONDS
            while tracker.executorList(True).size() <= count and time.monotonic() < deadline:
                time.sleep(0.1)
            yield spark, directory
    finally:
        shutil.rmtree(caches, ignore_errors=True)


@contextmanager
def driver_cache(directory: Path) -> Iterator[None]:
    """Processes that the driver starts, such as those that merge, keep what they fetch here."""
    variable = "MIDSTREAM_CACHE_DIR"
    before = os.environ.get(variable)
    os.environ[variable] = str(directory)
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
