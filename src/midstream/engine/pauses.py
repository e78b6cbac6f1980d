"""The moment behind an epoch, in which the stream often has nothing to do: the time for what would slow it down."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from midstream.state.manifest import Manifest

LONGEST_SECONDS = 1.5
"""For so long after one epoch the end of the next is waited for."""

_LOOK_SECONDS = 0.02


def await_pause(latest: Callable[[], Manifest], wanted: Callable[[], bool]) -> bool:
    """Wait for the end of an epoch, unless that takes long or the stream stands still, or it is no longer wanted. Says
    whether it is."""
    last = latest()
    if last.epoch < 0:
        return wanted()
    until = datetime.fromisoformat(last.committed_at).timestamp() + LONGEST_SECONDS
    while wanted() and latest().epoch == last.epoch and time.time() < until:
        time.sleep(_LOOK_SECONDS)
    return wanted()
