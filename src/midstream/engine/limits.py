"""A time limit for Spark jobs: what takes longer is cancelled, and the caller told that this is why it failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from midstream.engine.jobs import canceller

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TimeLimit:
    """Cancels jobs that are still running after some seconds. `expired` says whether it had to."""

    def __init__(self, cancel: Callable[[], object], seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._cancel_jobs = cancel
        self._timer = threading.Timer(seconds, self._cancel)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _cancel(self) -> None:
        self.expired = True
        self._cancel_jobs()


class EpochLimit:
    """A time limit for one epoch at a time, set and taken off by the thread that runs it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._limit: TimeLimit | None = None

    def set(self, seconds: float) -> None:
        """Limit the epoch that begins, if its jobs can be told from others and it has no limit yet."""
        cancel = canceller(self._spark)
        if cancel is not None and self._limit is None:
            self._limit = TimeLimit(cancel, seconds).__enter__()

    def take_off(self) -> TimeLimit | None:
        """The limit the epoch had, which does not count any more."""
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.__exit__()
        return limit
