"""`kill -9` at random instants: whatever dies and whenever, a new start ends with the result of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from midstream.state.collector import Collector
from midstream.state.ledger import Ledger
from midstream.state.store import open_store
from tests.recovery.orders import Shop, segments_needed, segments_on_disk
from tests.recovery.processes import Driver
from tests.recovery.workload import Orders

SEED = 20260


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.timeout(3600)
def test_killed_at_random_instants(kills: int, shop: Shop) -> None:
    chance = random.Random(SEED)
    log: list[str] = []
    for number in range(kills):
        log.append(_run_and_kill(shop, chance, number))
        print(f"kill {number}: {log[-1]}", flush=True)
    assert shop.committed() >= 0, log

    last = Driver.start(Orders.of(shop, f"result-{kills}"))
    result = last.finish()
    assert result["ended"] == "finished", (result, log)
    shop.check()
    _check_no_orphans(shop)


def _run_and_kill(shop: Shop, chance: random.Random, number: int) -> str:
    """Start the driver, let it come some way and kill it; what was killed, when."""
    # Enough that it does not finish first: input is added as it goes, so that the rest at the end is small.
    before = shop.committed()
    shop.add_epochs(max(0, before + 8 - shop.epochs))
    driver = Driver.start(Orders.of(shop, f"result-{number}"))
    phase = chance.choice(["starting", "first epoch", "epochs", "epochs"])
    if phase == "starting":
        generation = len(list(Path(shop.checkpoint, "drivers").glob("*.json"))) + 1
        mark = Path(shop.checkpoint, "drivers", f"{generation:06d}.json")
        _wait(driver, mark.exists)
        delay = chance.uniform(0, 1.5)
    else:
        wanted = before + (1 if phase == "first epoch" else chance.randint(2, 4))
        _wait(driver, lambda: shop.committed() >= wanted)
        delay = chance.uniform(0, 0.6)
    time.sleep(delay)
    victim = chance.choice(["everything", "everything", "driver", "jvm"])
    epoch = shop.committed()
    _kill(driver, victim)
    return f"{victim} while {phase}, {delay:.3f} s after the mark, at epoch {epoch} (started at {before})"


def _wait(driver: Driver, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 400
    while not reached():
        assert driver.process.alive, f"it ended by itself:\n{driver.process.tail()}"
        assert time.monotonic() < deadline, f"no progress:\n{driver.process.tail()}"
        time.sleep(0.005)


def _kill(driver: Driver, victim: str) -> None:
    """Kill all processes at once, as when the machine goes, or one of them, as the kernel does when memory runs out:
    the others may then go on for a moment. Nothing is left of any of them afterwards."""
    target = driver.process.jvm() if victim == "jvm" else driver.process.pid
    if victim != "everything" and target is not None:
        os.kill(target, signal.SIGKILL)
        time.sleep(0.3)
    driver.process.kill_all()


def _check_no_orphans(shop: Shop) -> None:
    """What crashes left behind is collected, but for files an earlier driver might still be about to commit."""
    store = open_store(shop.checkpoint)
    Collector(Ledger.open(store), retain=5).recover()
    left = segments_on_disk(shop.checkpoint) - segments_needed(shop.checkpoint)
    assert all("-g0" in path for path in left), left
