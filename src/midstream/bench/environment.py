"""Where a benchmark runs: its directory, its memory and its progress display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from midstream.bench.machine import Machine, this_machine
from midstream.bench.progress import Progress
from midstream.bench.session import spark_session


@dataclass(frozen=True)
class Environment:
    directory: Path
    progress: Progress
    driver_memory: str = "10g"

    @contextmanager
    def session(self, name: str, conf: Mapping[str, str] | None = None) -> Iterator[tuple[SparkSession, Path]]:
        """A session in a new JVM, and a directory for its files."""
        self.progress.phase(f"{name}: starting Spark")
        directory = self.directory / name
        directory.mkdir()
        with spark_session(directory, driver_memory=self.driver_memory, conf=conf) as spark:
            yield spark, directory

    def machine(self, spark: SparkSession) -> Machine:
        return this_machine(spark)
