"""A time limit for Spark jobs: what takes longer is cancelled, and the caller told that this is why it failed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark import SparkContext


class TimeLimit:
    """Cancels the jobs of a group that are still running after some seconds. `expired` says whether it had to."""

    def __init__(self, context: SparkContext, group: str, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._context = context
        self._group = group
        self._timer = threading.Timer(seconds, self._cancel)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _cancel(self) -> None:
        self.expired = True
        self._context.cancelJobGroup(self._group)


class EpochLimit:
    """A time limit for one epoch at a time, set and taken off by the thread that runs it."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._limit: TimeLimit | None = None

    def set(self, seconds: float) -> None:
        """Limit the epoch that begins, if its jobs can be told from others and it has no limit yet."""
        group = self._context.getLocalProperty("spark.jobGroup.id")
        if group is not None and self._limit is None:
            self._limit = TimeLimit(self._context, group, seconds).__enter__()

    def take_off(self) -> TimeLimit | None:
        """The limit the epoch had, which does not count any more."""
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.__exit__()
        return limit
