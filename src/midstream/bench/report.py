"""The one shape every benchmark's result has, and the verdict on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from midstream.bench.machine import Machine


@dataclass(frozen=True)
class ChangeFigures:
    """A change made to a running query, the median of its repetitions.

    `outage_ms` is how much longer than usual nothing was committed: the gap between two commits less the usual one.
    """

    repeated: int
    submit_ms: float | None
    wait_ms: float | None
    perform_ms: float | None
    total_ms: float
    epoch_before_ms: float
    epoch_at_ms: float
    epoch_after_ms: float
    outage_ms: float


@dataclass(frozen=True)
class MigrationFigures:
    """Instances that moved: the slowest epochs from the moment it was asked for, and what was fetched when.

    `warmed_bytes` came before the change was applied, `first_epoch_bytes` are what its first epoch waited for.
    `applied_seconds` after it was asked for, the first epoch with the change had ended.
    `timeline` has for every epoch when it ended, in seconds since then, and how long it took, in milliseconds.
    `base_merged` says that the base of the state was merged meanwhile: what then was fetched anew is in the figures.
    """

    peak_ms: float
    p99_ms: float
    migrated_seconds: float
    warmed_bytes: int
    first_epoch_bytes: int
    timeline: tuple[tuple[float, float], ...]
    applied_seconds: float | None = None
    base_merged: bool = False


@dataclass(frozen=True)
class RecoveryFigures:
    """A new driver after the last one was killed: medians of the repetitions.

    `first_commit_ms` is from the call of `start` to the commit of the first epoch, `first_commit_of_process_ms` from
    the start of its process, `first_epoch_ms` that epoch alone.
    """

    repeated: int
    first_commit_ms: float
    slowest_first_commit_ms: float
    first_commit_of_process_ms: float
    first_epoch_ms: float


@dataclass(frozen=True)
class BalanceFigures:
    """The instances of a step in an epoch: the slowest, the median one, and how often the one is the other."""

    slowest_ms: float
    median_ms: float
    spread: float


@dataclass(frozen=True)
class Measurement:
    """What one contender did in its measured epochs. None: not measured, or without meaning here.

    `checkpoint_bytes_per_epoch` is what appeared in the checkpoint directory, whoever wrote it.
    `correct` is the comparison with an independent batch computation.
    """

    keys: int
    rows_per_epoch: int
    epochs: int
    rows_per_second: float
    epoch_p50_ms: float
    epoch_p99_ms: float
    wall_p50_ms: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    state_growth: float | None = None
    """The most state there was in the second half of the stream, against the first."""
    checkpoint_bytes_per_epoch: float | None = None
    fill_seconds: float | None = None
    correct: bool | None = None
    change: ChangeFigures | None = None
    migration: MigrationFigures | None = None
    recovery: RecoveryFigures | None = None
    balance: BalanceFigures | None = None


@dataclass(frozen=True)
class Target:
    """A bound on a figure: `bound` reads ">= 10" or "<= 1.5"."""

    name: str
    value: float
    bound: str
    met: bool


def at_least(name: str, value: float, bound: float) -> Target:
    """
    >>> at_least("rows/s", 12.5, 10)
    Target(name='rows/s', value=12.5, bound='>= 10', met=True)
    """
    return Target(name, value, f">= {bound:g}", value >= bound)


def at_most(name: str, value: float, bound: float) -> Target:
    """
    >>> at_most("epoch cost", 1.6, 1.5)
    Target(name='epoch cost', value=1.6, bound='<= 1.5', met=False)
    """
    return Target(name, value, f"<= {bound:g}", value <= bound)


@dataclass(frozen=True)
class Report:
    """A finished benchmark. `ours` and `peers` go by the contender's name, `ratios` by what is compared."""

    bench: str
    machine: Machine
    ours: Mapping[str, Measurement]
    peers: Mapping[str, Measurement] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()

    def failures(self) -> list[str]:
        """Why `--check` fails: wrong results first, then missed targets."""
        measured = {**self.ours, **self.peers}
        wrong = [f"{name}: wrong result" for name, figures in measured.items() if figures.correct is False]
        missed = [f"{t.name}: {t.value:.3g}, wanted {t.bound}" for t in self.targets if not t.met]
        return wrong + missed

    def write_json(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")
