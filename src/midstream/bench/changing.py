"""A change to a running query and what it costs: the epochs around it, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from midstream.bench.contender import Running
from midstream.bench.ours import MidstreamRunning
from midstream.bench.report import ChangeFigures
from midstream.bench.timing import EpochTiming

MOST_SECONDS = 300.0


class Epochs:
    """The epochs of a running query, collected as they end."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._seen: dict[int, EpochTiming] = {}

    def wait(self, more: int) -> None:
        """Wait for some more epochs."""
        self._poll()
        wanted = len(self._seen) + more
        while len(self._seen) < wanted:
            time.sleep(0.02)
            failure = self._running.failure()
            if failure is not None:
                raise failure
            self._poll()

    def around(self, epoch: int, many: int) -> list[EpochTiming]:
        return [t for e, t in sorted(self._seen.items()) if epoch - many <= e <= epoch + many]

    def all(self) -> list[EpochTiming]:
        return [timing for _, timing in sorted(self._seen.items())]

    def _poll(self) -> None:
        self._seen.update({timing.epoch: timing for timing in self._running.progress.poll()})


def make_change(running: MidstreamRunning, epochs: Epochs, change: Any, quiet_epochs: int) -> ChangeFigures:
    """Make a change (None: undo the last one) and wait for some epochs to compare with."""
    run = running.run
    modification = run.undo(timeout=MOST_SECONDS) if change is None else run.apply(change, timeout=MOST_SECONDS)
    assert modification.epoch is not None
    epochs.wait(quiet_epochs)
    seconds = modification.seconds
    timings = epochs.around(modification.epoch, quiet_epochs)
    before = [t for t in timings if t.epoch < modification.epoch]
    after = [t for t in timings if t.epoch > modification.epoch]
    (at,) = [t for t in timings if t.epoch == modification.epoch]
    return ChangeFigures(
        repeated=1,
        submit_ms=seconds["submit"] * 1000,
        wait_ms=seconds["wait"] * 1000,
        perform_ms=seconds["perform"] * 1000,
        total_ms=seconds["total"] * 1000,
        epoch_before_ms=median(t.duration_ms for t in before),
        epoch_at_ms=at.duration_ms,
        epoch_after_ms=median(t.duration_ms for t in after),
        outage_ms=outage_ms(before[-1], at, before),
    )


def outage_ms(last: EpochTiming, first: EpochTiming, usual: list[EpochTiming]) -> float:
    """How much longer than usual nothing was committed between two epochs."""
    gap = end_ms(first) - end_ms(last)
    gaps = [end_ms(b) - end_ms(a) for a, b in pairwise(usual)]
    return max(0.0, gap - (median(gaps) if gaps else 0.0))


def end_ms(timing: EpochTiming) -> float:
    return timing.started * 1000 + timing.duration_ms


def median_change(figures: Sequence[ChangeFigures]) -> ChangeFigures:
    """The median of each figure, of repetitions of one change."""

    def middle(name: str) -> Any:
        values = [getattr(f, name) for f in figures]
        return None if None in values else median(values)

    names = [name for name in ChangeFigures.__dataclass_fields__ if name != "repeated"]
    return ChangeFigures(repeated=len(figures), **{name: middle(name) for name in names})
