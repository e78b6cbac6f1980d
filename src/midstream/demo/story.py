"""The changes of the demo, one after another, and what each has cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import midstream as ms
from midstream.changes.change import Change
from midstream.coordinator.modification import Modification, Phase
from midstream.demo.auction import BROKEN, NEW_RATE, VALID, WHALES, priced
from midstream.engine.run import Run

USUAL_EPOCHS = 10
"""Epochs before a change that its own is compared with."""


@dataclass(frozen=True)
class Scene:
    """A change, in words, and how it is expected to end. No change is the undoing of the one before."""

    words: str
    change: Change | None
    ends: Phase = Phase.APPLIED


@dataclass(frozen=True)
class Told:
    """A scene that was played: when its first epoch was, and by how much that was longer than usual."""

    scene: Scene
    modification: Modification
    extra_ms: float | None

    @property
    def as_expected(self) -> bool:
        return self.modification.phase is self.scene.ends


def scenes(directory: Path) -> list[Scene]:
    whales = ms.ChangeSet(
        [
            ms.Insert("whales", sql=WHALES, after="priced", branch=True),
            ms.Insert("whales_out", sink=ms.sinks.parquet(directory / "whales"), after="whales"),
        ]
    )
    return [
        Scene("another exchange rate", ms.Replace("priced", sql=priced(NEW_RATE))),
        Scene("leave out small bids", ms.Insert("valid", sql=VALID, between=("priced", "totals"))),
        Scene("4 partitions of state", ms.Rescale("totals", 4)),
        Scene("a branch and a sink for large bids", whales),
        Scene("a rate that fails: refused", ms.Replace("priced", sql=BROKEN), Phase.REJECTED),
        Scene("small bids count again", ms.Remove("valid")),
        Scene("undo that", None),
    ]


def play(scene: Scene, run: Run, timeout: float = 120.0) -> Told:
    """Apply a change and wait for its first epoch."""
    before = [report.duration_ms for report in run.epochs(USUAL_EPOCHS)]
    change = scene.change
    submitted = run.apply(change, wait=False) if change is not None else run.undo(wait=False)
    for _ in _until(timeout):
        modification = run.modification(submitted.id)
        # Its first epoch is told of a moment after it is applied.
        first = next((report for report in run.epochs(100) if report.epoch == modification.epoch), None)
        done = not modification.is_under_way and (modification.epoch is None or first is not None)
        if done or run.status not in ("starting", "running"):
            break
    extra = first.duration_ms - median(before) if first is not None and before else None
    return Told(scene, modification, extra)


def _until(seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
