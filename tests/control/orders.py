"""A pipeline for the control tests: numbers that come by themselves, summed by key, and a sink to look into."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.run import Run

KEYS = 10


class Orders:
    """`numbers` → `clean` (SQL) → `totals` (by key) → `out`."""

    def __init__(self, spark: SparkSession, directory: Path, rows_per_epoch: int = 50) -> None:
        def numbers(spark: SparkSession) -> DataFrame:
            return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_epoch).load()

        self.sink = ms.sinks.memory()
        clean = ms.source("numbers", numbers).sql("clean", f"SELECT value % {KEYS} AS key, 1 AS v FROM input")
        totals = clean.key_by("key").aggregate("totals", n=F.count("*"), total=F.sum("v"), parallelism=2)
        self.flow = totals.sink("out", self.sink)
        self.checkpoint = str(directory / "checkpoint")
        self.run: Run = self.flow.start(spark, self.checkpoint, trigger={"processingTime": "300 milliseconds"})
        self.until(lambda: self.run.last_epoch >= 2)

    def until(self, done: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert self.run.status in ("starting", "running"), self.run.exception
            assert time.monotonic() < deadline, "it did not come to that"
            time.sleep(0.05)

    def latest(self) -> list[dict[str, Any]]:
        """What the last epoch gave."""
        epochs = self.sink.epochs
        return list(epochs[max(epochs)].to_pylist())
