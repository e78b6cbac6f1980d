"""What it costs a pipeline to be watched: rows/s with many clients that read its events, against with none.

One run, by turns: the clients come and go while it goes on. They are a process of their own, as browsers would be, on
the same cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from midstream.bench.environment import Environment
from midstream.bench.ours import Midstream, MidstreamRunning
from midstream.bench.progress import Progress
from midstream.bench.report import Report, at_least
from midstream.bench.timing import EpochTiming
from midstream.bench.trial import measurement
from midstream.bench.verify import counts_are_right
from midstream.bench.window import Window, observe
from midstream.bench.workload import random_keys
from midstream.control.gate import Limits
from midstream.control.server import ControlServer, ServeOptions
from midstream.errors import MidstreamError

LEAST_THROUGHPUT = 0.95
_UP_SECONDS = 60.0


FIRST = Window(warmup_epochs=30, warmup_seconds=10, epochs=20, seconds=10)
LATER = Window(warmup_epochs=3, warmup_seconds=1, epochs=20, seconds=10)


@dataclass(frozen=True)
class WatchersOptions:
    clients: int = 200
    keys: int = 1_000_000
    rows_per_epoch: int = 200_000
    rounds: int = 5
    first: Window = FIRST
    later: Window = LATER
    judged: bool = True


QUICK = WatchersOptions(5, 2_000, 1_000, 1, Window(1, 0, 3, 0), Window(1, 0, 3, 0), judged=False)


def watchers(options: WatchersOptions, environment: Environment) -> Report:
    workload = random_keys(options.keys, options.rows_per_epoch)
    ours = Midstream()
    with environment.session("watchers") as (spark, directory):
        os.environ["MIDSTREAM_HOME"] = str(directory / "home")
        running = ours.start(spark, workload, directory, rows_per_epoch=options.rows_per_epoch, once=False)
        limits = Limits(burst=10 * options.clients, per_second=10 * options.clients)
        server = ControlServer(running.run, "bench", ServeOptions(limits=limits))
        try:
            alone, watched = _by_turns(options, running, server, directory, environment.progress)
        finally:
            running.stop()
            server.stop()
        correct = counts_are_right(spark, workload, running, directory, environment.progress)
        machine = environment.machine(spark)
    figures = {
        "alone": replace(measurement(workload, alone), correct=correct),
        f"{options.clients} clients": replace(measurement(workload, watched), correct=correct),
    }
    name = f"rows/s with {options.clients} clients vs without"
    ratio = figures[f"{options.clients} clients"].rows_per_second / figures["alone"].rows_per_second
    targets = (at_least(name, ratio, LEAST_THROUGHPUT),) if options.judged else ()
    return Report("watchers", machine, figures, {}, {name: ratio}, targets)


def _by_turns(
    options: WatchersOptions, running: MidstreamRunning, server: ControlServer, directory: Path, progress: Progress
) -> tuple[list[list[EpochTiming]], list[list[EpochTiming]]]:
    alone: list[list[EpochTiming]] = []
    watched: list[list[EpochTiming]] = []

    def measure(window: Window) -> list[EpochTiming]:
        return observe(running.progress, window, failure=running.failure, progress=progress)

    for number in range(options.rounds):
        progress.phase(f"alone: round {number + 1} of {options.rounds}")
        alone.append(measure(options.later if number else options.first))
        progress.phase(f"{options.clients} clients: round {number + 1} of {options.rounds}")
        with _clients(options.clients, server, directory):
            watched.append(measure(options.later))
    return alone, watched


@contextmanager
def _clients(count: int, server: ControlServer, directory: Path) -> Iterator[None]:
    """Clients that all read events; gives back when the server has seen every one of them."""
    orders = {"url": f"{server.url}/v1/pipelines/bench/events", "token": server.tokens.reader, "count": count}
    with (directory / "clients.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "midstream.bench.watchers"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(orders).encode())
    process.stdin.close()
    try:
        _wait_for(server, count)
        yield
        if server.served.hub.watchers < count:
            raise MidstreamError("CLIENTS_LOST", f"Of {count} clients {server.served.hub.watchers} are left.")
    finally:
        process.kill()
        process.wait()
        _wait_for(server, 0)


def _wait_for(server: ControlServer, count: int) -> None:
    deadline = time.monotonic() + _UP_SECONDS
    while server.served.hub.watchers != count:
        if time.monotonic() > deadline:
            found = server.served.hub.watchers
            raise MidstreamError("CLIENTS_NOT_UP", f"{found} clients are there and {count} were to be.")
        time.sleep(0.05)


async def _watch(url: str, token: str, count: int) -> None:
    """The clients: each reads all it is sent. Plain sockets, so that they cost little and the server's part shows."""
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    path = "/" + url.removeprefix("http://").partition("/")[2]

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        while await reader.read(65_536):
            pass

    await asyncio.gather(*(one() for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(_watch(**json.load(sys.stdin)))
