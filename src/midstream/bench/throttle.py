"""A store with a limit: a proxy that lets so many bytes a second through, the same for whoever reads.

`python -m midstream.bench.throttle <port> <port of the store> <bytes a second>`

Threads that do nothing but wait and have the kernel copy: the proxy shares the cores of what is measured.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from midstream.bench.servers import S3Server, free_ports

_CHUNK = 256 * 1024


class Bucket:
    """Permission to send bytes, which drips in at a steady rate; no more than a tenth of a second is saved up."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._due = clock()
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        with self._lock:
            now = self._clock()
            self._due = max(self._due, now - 0.1) + count / self._rate
            wait = self._due - now
        if wait > 0:
            self._sleep(wait)


def _pump(source: socket.socket, target: socket.socket, bucket: Bucket | None) -> None:
    """Pass on what comes until no more does, and then that no more does."""
    room = memoryview(bytearray(_CHUNK))
    with suppress(OSError):
        while count := source.recv_into(room):
            if bucket is not None:
                bucket.take(count)
            target.sendall(room[:count])
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _connect(client: socket.socket, store: int, bucket: Bucket) -> None:
    with suppress(ConnectionError), client, socket.create_connection(("127.0.0.1", store)) as server:
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asking = threading.Thread(target=_pump, args=(client, server, None), daemon=True)
        asking.start()
        _pump(server, client, bucket)
        asking.join()


def _serve(port: int, store: int, bytes_per_second: float) -> None:
    bucket = Bucket(bytes_per_second)
    with socket.create_server(("127.0.0.1", port), backlog=128) as listening:
        print("ready", flush=True)
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_connect, args=(client, store, bucket), daemon=True).start()


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
    _serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
