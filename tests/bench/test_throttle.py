"""The limit that benches put before a store: so many bytes a second for all together, and every byte as it was sent."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from midstream.bench.servers import S3Server
from midstream.bench.throttle import Bucket, throttled


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("idle", [0.0, 5.0])
def test_a_bucket_lets_through_what_drips_in_and_saves_up_little(idle: float) -> None:
    watch = Watch()
    bucket = Bucket(1000, lambda: watch.now, watch.sleep)
    watch.sleep(idle)
    for _ in range(100):
        bucket.take(50)
    assert watch.now - idle == pytest.approx(5.0, abs=0.11)


def test_readers_share_the_limit_and_get_every_byte() -> None:
    sent = os.urandom(400_000)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_serve, args=(listening, sent), daemon=True).start()
        store = S3Server(f"http://127.0.0.1:{listening.getsockname()[1]}", "key", "secret", "bucket")
        with throttled(store, 1_000_000) as limited, ThreadPoolExecutor(3) as pool:
            begun = time.monotonic()
            port = int(limited.endpoint.rpartition(":")[2])
            assert list(pool.map(_read, [port] * 3)) == [sent] * 3
            assert time.monotonic() - begun > 1.0, "1.2 MB, of which a tenth of a second's may come at once"


def _serve(listening: socket.socket, data: bytes) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        with client:
            client.recv(1)
            client.sendall(data)


def _read(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as reader:
        reader.sendall(b"?")
        found = b""
        while part := reader.recv(65536):
            found += part
        return found
