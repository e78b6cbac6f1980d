"""The socket between Spark and its Python worker, told not to wait.

Spark sends a task's command and then its rows in two small writes. The kernel holds the second back until the first is
acknowledged, and the acknowledgement back for 40 ms, hoping to save a packet (Nagle's algorithm against delayed
acknowledgements). Asking for it at once takes those 40 ms, a fifth of a small epoch, out of every Python stage.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_streams: tuple[int, list[socket.socket]] | None = None


def hurry() -> None:
    """Acknowledge what has arrived, and from now on send small writes at once. Does nothing where there is no TCP."""
    if _QUICKACK is None:
        return
    for stream in _tcp_streams():
        with suppress(OSError):
            # The kernel forgets this one soon: it is asked for anew by every task.
            stream.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


def _tcp_streams() -> list[socket.socket]:
    """The connections this process has. A worker keeps its one for life, so they are looked for once."""
    global _streams
    if _streams is None or _streams[0] != os.getpid():
        _streams = os.getpid(), list(filter(None, map(_tcp_stream, _descriptors())))
        for stream in _streams[1]:
            with suppress(OSError):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _streams[1]


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return []


def _tcp_stream(descriptor: int) -> socket.socket | None:
    """A connected TCP socket by its descriptor, as a duplicate: closing it leaves the original open."""
    try:
        found = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return None
    try:
        if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
            found.getpeername()
            return found
    except OSError:
        pass
    found.close()
    return None
