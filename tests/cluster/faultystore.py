"""A store that misbehaves when told: an HTTP proxy before the real one, with a door for each of its clients.

Its log is the store's own word on who read how much. (SeaweedFS has an audit log, but that does not tell bytes.)
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.cluster.http import Head, body, read_head


@dataclass(frozen=True)
class Faults:
    """What goes wrong, as shares of requests."""

    errors: float = 0.0
    """Answered with 500 or 503, and not carried out."""
    lost: float = 0.0
    """Carried out, but the answer is lost: the connection ends, or it is a 500."""
    stalls: float = 0.0
    """Neither carried out nor answered: the client's time-out is what ends them."""
    silence: float = 0.0
    """Carried out, but never answered."""
    bytes_per_second: float | None = None
    """How fast each answer comes."""


NO_FAULTS = Faults()


@dataclass(frozen=True)
class Access:
    """One line of the log: `sent` counts the bytes of the body that went to the client."""

    at: float
    client: str
    method: str
    path: str
    range: str
    status: int
    sent: int


@dataclass
class Door:
    """Where one client comes in. While it is shut nothing goes through, as if packets were lost on the way."""

    client: str
    address: str
    port: int = 0
    faults: Faults = NO_FAULTS
    shut: bool = False
    stalled: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}:{self.port}"


class FaultyStore:
    """The proxy, in a thread of its own. Faults may be set at any time from any thread, and hold for new requests."""

    def __init__(self, store: str, seed: int) -> None:
        self._store = urlsplit(store)
        self._chance = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-store", daemon=True)
        self.doors: dict[str, Door] = {}
        self.log: list[Access] = []

    def open(self, client: str, address: str = "127.0.0.1") -> Door:
        """A door for one more client."""
        door = self.doors[client] = Door(client, address)

        async def listen() -> None:
            server = await asyncio.start_server(lambda r, w: self._serve(door, r, w), address, 0)
            door.port = server.sockets[0].getsockname()[1]

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        return door

    def misbehave(self, faults: Faults) -> None:
        """For all clients alike."""
        for door in self.doors.values():
            door.faults = faults

    def shut(self, client: str) -> None:
        self.doors[client].shut = True

    def unshut(self, client: str) -> None:
        door = self.doors[client]
        door.shut = False

        def drop() -> None:
            for writer in door.stalled:
                writer.transport.abort()

        self._loop.call_soon_threadsafe(drop)

    def read_by(self, client: str, folder: str, since: float, until: float) -> int:
        """The bytes a client was sent of objects in a folder of any checkpoint."""
        return sum(
            access.sent
            for access in list(self.log)
            if access.client == client
            and access.method == "GET"
            and access.status in (200, 206)
            and f"/{folder}/" in access.path
            and since <= access.at <= until
        )

    def write_log(self, file: Path) -> None:
        file.write_text("".join(f"{a}\n" for a in list(self.log)))

    @contextmanager
    def running(self) -> Iterator[FaultyStore]:
        self._thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    async def _serve(self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (request := await read_head(reader)) is not None:
                if not await self._answer(door, request, reader, writer):
                    break
        writer.close()

    async def _answer(
        self, door: Door, request: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request; whether the connection may go on."""
        content = b"".join([chunk async for chunk in body(reader, request, request=True)])
        faults = door.faults
        fault = self._fault(faults)
        if door.shut or fault == "stalls":
            return await self._stall(door, request, reader, writer)
        if fault == "errors":
            return await self._refuse(door, request, writer)
        answers, requests = await asyncio.open_connection(self._store.hostname, self._store.port)
        try:
            requests.write(request.raw + content)
            answer = await read_head(answers)
            if answer is None:
                return False
            if fault == "silence":
                return await self._stall(door, request, reader, writer)
            if fault == "lost" and self._chance.random() < 0.5:
                return await self._refuse(door, request, writer)
            if fault == "lost":
                self._note(door, request, 0, 0)
                return False
            writer.write(answer.raw)
            sent = 0
            try:
                async for chunk in body(answers, answer, has_none=request.method == "HEAD"):
                    if door.shut:
                        return await self._stall(door, request, reader, writer)
                    await _deliver(chunk, writer, faults.bytes_per_second)
                    sent += len(chunk)
            finally:
                self._note(door, request, answer.status, sent)
            return not answer.ends_connection
        finally:
            requests.close()

    async def _refuse(self, door: Door, request: Head, writer: asyncio.StreamWriter) -> bool:
        status, told = self._chance.choice([(500, "InternalError"), (503, "SlowDown")])
        text = f"<Error><Code>{told}</Code><Message>so it was told</Message></Error>".encode()
        content = b"" if request.method == "HEAD" else text
        writer.write(f"HTTP/1.1 {status} {told}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + content)
        await writer.drain()
        self._note(door, request, status, 0)
        return True

    async def _stall(
        self, door: Door, request: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Say nothing until the client goes away."""
        door.stalled.add(writer)
        try:
            await reader.read()
        finally:
            door.stalled.discard(writer)
        self._note(door, request, 0, 0)
        return False

    def _fault(self, faults: Faults) -> str | None:
        """Which one a request meets, if any."""
        dice = self._chance.random()
        for name in ("stalls", "errors", "lost", "silence"):
            dice -= getattr(faults, name)
            if dice < 0:
                return name
        return None

    def _note(self, door: Door, request: Head, status: int, sent: int) -> None:
        path = unquote(urlsplit(request.target).path)
        given = request.headers.get("range", "")
        self.log.append(Access(time.time(), door.client, request.method, path, given, status, sent))


async def _deliver(chunk: bytes, writer: asyncio.StreamWriter, bytes_per_second: float | None) -> None:
    size = len(chunk) if bytes_per_second is None else max(1, int(bytes_per_second / 20))
    for start in range(0, len(chunk), size):
        if bytes_per_second is not None:
            await asyncio.sleep(0.05)
        writer.write(chunk[start : start + size])
        await writer.drain()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def faulty_store(store: str, seed: int) -> Iterator[FaultyStore]:
    with FaultyStore(store, seed).running() as proxy:
        yield proxy
