"""What the benchmarks need of an engine, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from midstream.bench.timing import QueryProgress, StateSize
from midstream.bench.workload import Workload


class Running(Protocol):
    """A started query."""

    name: str
    progress: QueryProgress

    def failure(self) -> BaseException | None:
        """Why it is not running any more, None while it is."""
        ...

    def stop(self) -> None: ...


class Counting(Running, Protocol):
    """A started query that counts rows by key."""

    def wait(self) -> None:
        """Until a query started with `once` has ended; raises what it failed with."""
        ...

    def state_size(self) -> StateSize | None: ...

    def rows_committed(self) -> int:
        """How many rows of the source the last committed epoch has reached. Call it after `stop`."""
        ...

    def counts(self) -> pa.Table:
        """`key` and `n` as of the last committed epoch. Call it after `stop`."""
        ...


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings of the session it runs in, beyond those all contenders share."""
        ...

    def start(
        self, spark: SparkSession, workload: Workload, directory: Path, *, rows_per_epoch: int, once: bool
    ) -> Counting:
        """Count rows by key, from where the checkpoint in `directory` ends; with `once`, for one epoch."""
        ...
