"""The stream goes first: what copies state in the background waits while a task of the stream runs on this executor.

A task holds a shared lock on a file beside the cache; who copies tries for it alone between two blocks. The kernel lets
go of the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = ".working"
_LOOK_SECONDS = 0.01


@contextmanager
def working(directory: Path) -> Iterator[None]:
    """For as long as a task works. Costs it some microseconds, and nothing can go wrong for it here."""
    file: int | None = None
    with suppress(OSError):
        file = _open(directory)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # not free only while somebody looks whether it is
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def give_way(
    directory: Path,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until no task works, but no longer than this: a stream that always works is not to stop all copying."""
    deadline = clock() + seconds
    with suppress(OSError):
        file = _open(directory)
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


def _open(directory: Path) -> int:
    path = directory / _NAME
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
