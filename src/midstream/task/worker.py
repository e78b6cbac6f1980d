"""What each task does first in its Python worker, which it shares with those before and after it."""

from __future__ import annotations

from pyspark import TaskContext

from midstream.task.garbage import set_aside
from midstream.task.sockets import hurry


def begin() -> None:
    """Have the worker lose no time. Spark has collected the garbage of the task before."""
    hurry()
    if TaskContext.get() is not None:
        set_aside()
