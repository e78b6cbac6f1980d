"""Plays a chaos run: sees that a driver runs, makes everything fail around it, and in the end lets it finish."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.cluster.chaosacts import CHANGES, Act
from tests.cluster.chaosdriver import Script
from tests.cluster.faultystore import NO_FAULTS, Faults, FaultyStore
from tests.cluster.standalone import SparkCluster
from tests.cluster.storelink import StoreLink
from tests.recovery.processes import Process, run_module

FAULTS = {
    "errors": Faults(errors=0.5),
    "lost answers": Faults(lost=0.2),
    "stalls": Faults(stalls=0.15),
    "slow answers": Faults(bytes_per_second=30_000),
}
STUCK_SECONDS = 120
"""Faults last seconds, and so does a start: a stream that commits nothing for longer than this hangs."""
END_SECONDS = 240
EPOCH_SECONDS = 20


@dataclass
class Play:
    """Everything there is of a run, from outside."""

    root: Path
    cluster: SparkCluster
    proxy: FaultyStore
    link: StoreLink
    script: Script
    done: Counter[str] = field(default_factory=Counter)
    ends: list[str] = field(default_factory=list)
    """Why each driver but the last ended."""
    log: list[str] = field(default_factory=list)
    _driver: Process | None = None
    _later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    _moved: tuple[int, float] = (0, 0.0)
    _began: float = field(default_factory=time.monotonic)

    def play(self, acts: Iterable[Act]) -> dict[str, Any]:
        """Run everything; what the last driver told in the end."""
        (self.root / "orders").touch()
        (self.root / "told").touch()
        self._start()
        try:
            # The first change needs something to change.
            self._wait(lambda: self.epochs() > 0)
            for act in acts:
                self._pause(act)
                self._perform(act)
            self._calm()
            return self._finish()
        finally:
            self._calm()
            self._kill_driver()

    def epochs(self) -> int:
        return len(list((self.root / "sums").glob("epoch=*")))

    def told(self, event: str, pid: int | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.root / "told").read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["event"] == event and pid in (None, line["pid"])]

    def _perform(self, act: Act) -> None:
        chance = random.Random(act.pick)
        self.done[act.kind] += 1
        about = ""
        if act.kind in CHANGES:
            self._order(act.kind, act.pick)
        elif act.kind == "kill driver":
            self._kill_driver()
            self.ends.append("killed")
            self._start()
        elif act.kind == "kill executor":
            about = chance.choice(list(self.cluster.workers))
            for pid in self.cluster.executors_of(about):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif act.kind == "cut":
            self.link.cut()
            self._at(act.seconds, self.link.mend)
        else:
            client = chance.choice([None, *self.proxy.doors])
            about = f"for {client or 'all'}"
            self._fault(act.kind, client, act.seconds)
        self._note(f"{act.kind} {about} {act.seconds:.1f} s" if act.kind not in CHANGES else act.kind)

    def _fault(self, kind: str, client: str | None, seconds: float) -> None:
        doors = [door for door in self.proxy.doors.values() if client in (None, door.client)]
        changed = {name: value for name, value in vars(FAULTS[kind]).items() if value}
        for door in doors:
            door.faults = replace(door.faults, **changed)

        def end() -> None:
            for door in doors:
                door.faults = replace(door.faults, **{name: getattr(NO_FAULTS, name) for name in changed})

        self._at(seconds, end)

    def _calm(self) -> None:
        self._later.clear()
        self.proxy.misbehave(NO_FAULTS)
        self.link.mend()

    def _finish(self) -> dict[str, Any]:
        """Have the driver come to its end; one that fails by what has just been done to it is followed by another."""
        self._note("calm")
        deadline, ordered = time.monotonic() + END_SECONDS, None
        while not (ended := self.told("ended")):
            assert time.monotonic() < deadline, self._story("it does not come to an end")
            driver = self._look_after(coda=True)
            if ordered != driver.pid and self.told("up", driver.pid):
                ordered = driver.pid
                self._order("coda", 0)
            time.sleep(0.1)
        self._note(f"ended after {ended[0]['epochs']} epochs")
        return ended[0]

    def _pause(self, act: Act) -> None:
        """Wait for the time of an act; for its epochs only so long, as it is well worth to come while nothing goes."""
        now, wanted = time.monotonic(), self.epochs() + act.epochs
        self._wait(lambda: time.monotonic() > now + act.pause)
        self._wait(lambda: self.epochs() >= wanted or time.monotonic() > now + EPOCH_SECONDS)

    def _wait(self, happened: Callable[[], bool]) -> None:
        while not happened():
            self._look_after()
            for due in [due for due in self._later if due[0] <= time.monotonic()]:
                self._later.remove(due)
                due[1]()
            time.sleep(0.05)

    def _look_after(self, coda: bool = False) -> Process:
        """See that there is a driver, and that it gets on."""
        driver = self._driver
        assert driver is not None
        if not driver.alive and not self.told("ended", driver.pid):
            driver.wait(20)
            told = self.told("failed", driver.pid)
            assert told, self._story("a driver has ended without a word")
            assert told[0]["store"], self._story(f"a driver has failed by itself: {told[0]['message']}")
            self.ends.append(told[0]["error"])
            self._note(f"the driver ended: {told[0]['message']}")
            driver = self._start()
        if self.epochs() != self._moved[0]:
            self._moved = self.epochs(), time.monotonic()
        assert coda or time.monotonic() - self._moved[1] < STUCK_SECONDS, self._story("the stream hangs")
        return driver

    def _start(self) -> Process:
        log = self.root / f"driver-{len(self.ends)}.log"
        endpoint = self.proxy.doors["driver"].endpoint
        variables = {"AWS_ENDPOINT_URL": endpoint, "MIDSTREAM_CACHE_DIR": str(self.root / "cache-driver")}
        self._driver = run_module("tests.cluster.chaosdriver", self.script.to_json(), log=log, **variables)
        self._moved = self.epochs(), time.monotonic()
        return self._driver

    def _kill_driver(self) -> None:
        if self._driver is not None:
            self._driver.kill_all()

    def _order(self, kind: str, pick: int) -> None:
        with (self.root / "orders").open("a") as out:
            out.write(json.dumps({"kind": kind, "pick": pick}) + "\n")

    def _at(self, seconds: float, work: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + seconds, work))

    def _note(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self._began:7.1f} s, epoch {self.epochs() - 1}: {text}")
        print(self.log[-1], flush=True)

    def _story(self, what: str) -> str:
        assert self._driver is not None
        return "\n".join([what, *self.log, "the end of the driver's log:", self._driver.tail()])
