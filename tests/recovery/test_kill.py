"""`kill -9` at random instants: whatever dies and whenever, a new start ends with the result of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from midstream.state.collector import Collector
from midstream.state.ledger import Ledger
from tests.recovery.orders import Shop, segments_needed, segments_stored
from tests.recovery.processes import Driver
from tests.recovery.workload import Orders

SEED = 20260


@pytest.mark.parametrize("kills", [1, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.timeout(3600)
def test_killed_at_random_instants(kills: int, shop: Shop) -> None:
    kill_again_and_again(kills, shop)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_with_the_checkpoint_in_an_object_store(remote_shop: Shop) -> None:
    kill_again_and_again(10, remote_shop)


def kill_again_and_again(kills: int, shop: Shop) -> None:
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
        drivers = _drivers(shop)
        _wait(driver, lambda: _drivers(shop) > drivers)
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


def _drivers(shop: Shop) -> int:
    return len(list(shop.store.list("drivers")))


def _wait(driver: Driver, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 400
    while not reached():
        assert driver.process.alive, f"it ended by itself:\n{driver.process.tail()}"
        assert time.monotonic() < deadline, f"no progress:\n{driver.process.tail()}"
        time.sleep(0.005)


def _kill(driver: Driver, victim: str) -> None:
    """Kill all processes at once, as when the machine goes, or one of them, as the kernel does when memory runs out:
    the others may then go on for a moment. Nothing is left of any of them afterwards."""
    jvm = driver.process.jvm()
    if victim == "jvm" and jvm is not None:
        os.kill(jvm, signal.SIGKILL)
        driver.process.wait(300)
        result = driver.result()
        assert result.get("class", "SPARK_GONE") == "SPARK_GONE", result
    elif victim == "driver":
        os.kill(driver.process.pid, signal.SIGKILL)
        time.sleep(0.3)
    driver.process.kill_all()


def _check_no_orphans(shop: Shop) -> None:
    """What crashes left behind is collected, but for files an earlier driver might still be about to commit."""
    Collector(Ledger.open(shop.store), retain=5).recover()
    left = segments_stored(shop.store) - segments_needed(shop.store)
    assert all("-g0" in path for path in left), left
