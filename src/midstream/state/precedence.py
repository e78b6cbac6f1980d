"""The stream goes first: what copies or merges state in the background waits while the stream works on this machine.

A driver in an epoch and a task at its state hold a shared lock on a file that all processes of the machine know by the
URL of the checkpoint; who works in the background tries for it alone before each piece of work. The kernel lets go of
the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from midstream.state.ownfolder import own_folder
from midstream.state.store import Store

_FOLDER = "midstream-working"
_FILES = 256
"""Checkpoints share files rather than leave more and more of them behind: at worst one gives way to another."""

_LOOK_SECONDS = 0.01

LONGEST_SECONDS = 1.0
"""Of one wait: about an epoch of a stream that has pauses."""

_HEAD_START_SECONDS = 0.05
"""Waited for in any case, however little has been done so far. Small work is soon over, and deltas must not pile up."""


def meeting_point(store: Store) -> Path | None:
    """The file at which those who work on a checkpoint meet, if it can be had. A store that is a directory has none:
    all read the same files there, and nothing is copied."""
    if store.local_path(_FOLDER) is not None:
        return None
    with suppress(OSError):
        return own_folder(_FOLDER) / f"{xxhash.xxh64_intdigest(store.url.encode()) % _FILES:03d}"
    return None


@contextmanager
def working(point: Path | None) -> Iterator[None]:
    """For as long as the stream works. Costs it some microseconds, and nothing can go wrong for it here."""
    file: int | None = None
    if point is not None:
        with suppress(OSError):
            file = _open(point)
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # not free only while somebody looks whether it is
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def give_way(
    point: Path,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the stream does not work, but no longer than this."""
    deadline = clock() + seconds
    with suppress(OSError):
        file = _open(point)
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if clock() >= deadline:
                        return
                    sleep(_LOOK_SECONDS)
        finally:
            os.close(file)


class Courtesy:
    """Gives way before each piece of a work, and all in all no longer than the work itself takes: a stream that always
    works is not to stop all else."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._point = meeting_point(store)
        self._clock, self._sleep = clock, sleep
        self._begun = clock()
        self._waited = 0.0

    def __call__(self) -> None:
        """To be called before each piece."""
        if self._point is None:
            return
        now = self._clock()
        worked = now - self._begun - self._waited
        seconds = min(worked + _HEAD_START_SECONDS - self._waited, LONGEST_SECONDS)
        if seconds > 0:
            give_way(self._point, seconds, self._clock, self._sleep)
            self._waited += self._clock() - now


def _open(point: Path) -> int:
    return os.open(point, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
