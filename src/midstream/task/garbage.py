"""What a worker has loaded is no garbage, and need not be looked through for it after every task.

Spark collects garbage in a Python worker after each task. With all that is imported (90,000 objects) that takes 40 ms
of a processor, more than a small task itself, while other tasks of the epoch run and before the worker takes the next.
"""

from __future__ import annotations

import gc
import os

MANY = 10_000
"""Objects that have come since, from which on it is worth setting them aside."""

_MOST_TIMES = 4
"""Reference counts still free what is set aside, but cycles in it stay for good: it must not go on and on. Modules come
with the first tasks, those of user functions included."""

_times: tuple[int, int] = (0, 0)
"""How often this process has done it. A forked one begins anew."""


def set_aside() -> None:
    """Exempt what is there now from collections, if that is much. To be called when garbage has just been collected."""
    global _times
    times = _times[1] if _times[0] == os.getpid() else 0
    if times < _MOST_TIMES and len(gc.get_objects()) > MANY:
        gc.freeze()
        _times = os.getpid(), times + 1
