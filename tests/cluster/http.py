"""As much of HTTP/1.1 as a proxy needs to know where a message ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Head:
    """The first line and the headers of a request or an answer; names of headers in lower case."""

    raw: bytes
    line: str
    headers: dict[str, str]

    @property
    def method(self) -> str:
        return self.line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.line.split(" ")[1])

    @property
    def ends_connection(self) -> bool:
        """Whether only the end of the connection, or the sender's word, ends it."""
        sized = "content-length" in self.headers or "transfer-encoding" in self.headers
        return self.headers.get("connection", "").lower() == "close" or not (sized or self.status in (204, 304))


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next one, None when the sender has no more to say."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *headers = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (header.partition(":") for header in headers)
    return Head(raw, line, {name.strip().lower(): value.strip() for name, _, value in pairs})


async def body(
    reader: asyncio.StreamReader, head: Head, request: bool = False, has_none: bool = False
) -> AsyncIterator[bytes]:
    """The body behind a head, piece by piece, as it is on the wire."""
    if has_none or (not request and head.status in (204, 304)):
        return
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = await reader.readuntil(b"\r\n")
            length = int(size.partition(b";")[0], 16)
            yield size + await reader.readexactly(length + 2)
            if length == 0:
                return
    elif "content-length" in head.headers or request:
        left = int(head.headers.get("content-length", 0))
        while left:
            piece = await reader.read(min(left, _CHUNK))
            if not piece:
                raise ConnectionResetError("it ended in the middle of a body")
            left -= len(piece)
            yield piece
    else:
        while piece := await reader.read(_CHUNK):
            yield piece
