"""A driver in a process of its own, which counts and tells of every epoch in a file, until it is killed.

`python -m midstream.bench.driver '<json>'`
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from midstream.bench.ours import Midstream
from midstream.bench.session import spark_session
from midstream.bench.workload import random_keys
from midstream.errors import MidstreamError

SILENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Orders:
    """What a driver is told to do. `directory` is its own: all it leaves behind but the checkpoint is there."""

    directory: str
    keys: int
    rows_per_epoch: int
    checkpoint: str
    store_options: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str = "4g"
    cache: str | None = None
    """Where copies of state are kept; None for a place in its directory."""

    @property
    def told(self) -> Path:
        return Path(self.directory) / "told"


@dataclass(frozen=True)
class Life:
    """What is known of a driver: when its process began, when it called `start`, and its epochs (when each was
    committed and how long it took). All times are seconds since 1970."""

    spawned: float
    called: float
    epochs: tuple[tuple[float, float], ...]

    @property
    def first_commit_ms(self) -> float:
        return (self.epochs[0][0] - self.called) * 1000

    @property
    def first_commit_of_process_ms(self) -> float:
        return (self.epochs[0][0] - self.spawned) * 1000


class Driver:
    """A started driver."""

    def __init__(self, orders: Orders, process: subprocess.Popen[bytes], spawned: float) -> None:
        self._orders = orders
        self._process = process
        self._spawned = spawned

    def wait(self, epochs: int) -> Life:
        """Until it has committed so many epochs."""
        deadline = time.monotonic() + SILENCE_SECONDS
        while len((life := self.life()).epochs) < epochs:
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (Path(self._orders.directory) / "driver.log").read_text(errors="replace").splitlines()[-30:]
                raise MidstreamError("DRIVER_ENDED", "\n".join(["The driver that was to be killed failed:", *log]))
            time.sleep(0.02)
        return life

    def life(self) -> Life:
        lines = self._orders.told.read_text().splitlines(keepends=True) if self._orders.told.exists() else []
        facts = [json.loads(line) for line in lines if line.endswith("\n")]
        called = next((fact["at"] for fact in facts if fact["what"] == "start"), 0.0)
        epochs = tuple((fact["at"], fact["ms"]) for fact in facts if fact["what"] == "epoch")
        return Life(self._spawned, called, epochs)

    def kill(self) -> None:
        """`kill -9`: the driver, its JVM and its merges, all at once. Python workers end with the JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def driver(orders: Orders) -> Iterator[Driver]:
    """Start a driver; nothing of it is left after the block but its cache, when it has been told where to have one."""
    directory = Path(orders.directory)
    (directory / "tmp").mkdir(parents=True)
    cache = orders.cache or f"{directory}/cache"
    environment = {**os.environ, "MIDSTREAM_CACHE_DIR": cache, "TMPDIR": f"{directory}/tmp"}
    command = [sys.executable, "-m", "midstream.bench.driver", json.dumps(asdict(orders))]
    spawned = time.time()
    with (directory / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    started = Driver(orders, process, spawned)
    try:
        yield started
    finally:
        if process.poll() is None:
            started.kill()


def main(orders: Orders) -> None:
    directory = Path(orders.directory)
    with (
        orders.told.open("w", buffering=1) as told,
        spark_session(directory, driver_memory=orders.driver_memory) as spark,
    ):
        ours = Midstream(checkpoint=orders.checkpoint, store_options=orders.store_options)
        workload = random_keys(orders.keys, orders.rows_per_epoch)
        print(json.dumps({"what": "start", "at": time.time()}), file=told)
        running = ours.start(spark, workload, directory, rows_per_epoch=orders.rows_per_epoch, once=False)
        last = -1
        while not running.run.await_termination(0.02):
            for report in running.run.epochs(10):
                if report.epoch > last:
                    last = report.epoch
                    committed = report.started_at.timestamp() + report.duration_ms / 1000
                    print(json.dumps({"what": "epoch", "at": committed, "ms": report.duration_ms}), file=told)


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
