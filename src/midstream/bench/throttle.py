"""A store with a limit: a proxy that lets so many bytes a second through, the same for whoever reads.

`python -m midstream.bench.throttle <port> <port of the store> <bytes a second>`
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from midstream.bench.servers import S3Server, free_ports

_CHUNK = 256 * 1024


class Bucket:
    """Permission to send bytes, which drips in at a steady rate; no more than a tenth of a second is saved up."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._due = time.monotonic()

    async def take(self, count: int) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - 0.1) + count / self._rate
        if self._due > now:
            await asyncio.sleep(self._due - now)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, bucket: Bucket | None) -> None:
    with suppress(ConnectionError):
        while data := await source.read(_CHUNK):
            if bucket is not None:
                await bucket.take(len(data))
            target.write(data)
            await target.drain()
    with suppress(ConnectionError):
        target.close()


async def _serve(port: int, store: int, bytes_per_second: float) -> None:
    bucket = Bucket(bytes_per_second)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            answers, requests = await asyncio.open_connection("127.0.0.1", store)
            await asyncio.gather(_pump(reader, requests, None), _pump(answers, writer, bucket))

    server = await asyncio.start_server(connect, "127.0.0.1", port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


@contextmanager
def throttled(server: S3Server, bytes_per_second: float) -> Iterator[S3Server]:
    """The same server behind a limit on what is read from it."""
    (port,) = free_ports(1)
    store = server.endpoint.rpartition(":")[2]
    command = [sys.executable, "-m", "midstream.bench.throttle", str(port), store, str(bytes_per_second)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        yield replace(server, endpoint=f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
