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
