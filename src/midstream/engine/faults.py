"""Named points of the commit that crash tests stop at. In production `reach` is a look-up that finds nothing."""

from __future__ import annotations

import os
from collections.abc import Callable

_POINTS: dict[str, Callable[[], None]] = {}


def reach(point: str) -> None:
    """Called when a point of the commit is reached."""
    action = _POINTS.get(point)
    if action is not None:
        action()


def set_fault(point: str, action: Callable[[], None] | None) -> None:
    """Make something happen at a point: raise, kill the process, wait. None takes it away again."""
    if action is None:
        _POINTS.pop(point, None)
    else:
        _POINTS[point] = action


def die() -> None:
    """End the process at once, as `kill -9` does."""
    os.kill(os.getpid(), 9)
