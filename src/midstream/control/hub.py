"""Events for all who watch: made once, by one thread, and handed to each without waiting for any.

The stream only puts down what there is to tell. Whoever cannot keep up is cut off and may come back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from pydantic import BaseModel

_logger = logging.getLogger(__name__)

Event: TypeAlias = "tuple[str, object]"
BACKLOG = 200
"""Events a watcher may be behind."""
KEEP_ALIVE_SECONDS = 15.0


class Hub:
    """Watchers belong to the server's event loop; everything that tells belongs to other threads."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: queue.SimpleQueue[Callable[[], Iterable[Event]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._make, name="midstream-events", daemon=True)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def close(self) -> None:
        """Let all watchers go, behind what was told before."""
        self._told.put(None)

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def tell(self, make: Callable[[], Iterable[Event]]) -> None:
        """Have events made and handed out soon. Never waits."""
        self._told.put(make)

    def _make(self) -> None:
        while (make := self._told.get()) is not None:
            if not self._watchers:
                continue
            try:
                data = b"".join(encode(event, body) for event, body in make())
            except Exception:
                _logger.warning("an event could not be told", exc_info=True)
                continue
            self._hand_out(data)
        self._hand_out(None)

    def _hand_out(self, data: bytes | None) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self._put, data)

    def _put(self, data: bytes | None) -> None:
        for watcher in list(self._watchers):
            try:
                watcher.put_nowait(data)
            except asyncio.QueueFull:
                self._watchers.discard(watcher)
                watcher.get_nowait()
                watcher.put_nowait(None)

    async def watch(self, first: bytes) -> AsyncIterator[bytes]:
        """What one watcher gets, from now on."""
        mine: asyncio.Queue[bytes | None] = asyncio.Queue(BACKLOG)
        self._watchers.add(mine)
        try:
            yield first
            while True:
                try:
                    data = await asyncio.wait_for(mine.get(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield b": still there\n\n"
                    continue
                if data is None:
                    return
                yield data
        finally:
            self._watchers.discard(mine)


def encode(event: str, body: object) -> bytes:
    text = body.model_dump_json() if isinstance(body, BaseModel) else json.dumps(body)
    return f"event: {event}\ndata: {text}\n\n".encode()
