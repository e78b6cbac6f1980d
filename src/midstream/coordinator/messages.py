"""What the coordinator is told (events), and what it wants done (instructions). Facts only, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from midstream.coordinator.modification import Phase


@dataclass(frozen=True)
class Submitted:
    """A change, or the wish to take one back, has arrived and lies in the store under this number."""

    id: int
    undoes: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class CancelAsked:
    id: int


@dataclass(frozen=True)
class FoundValid:
    """The change fits the pipeline."""

    id: int


@dataclass(frozen=True)
class FoundInvalid:
    """The change does not fit, or could not be prepared."""

    id: int
    reason: str


@dataclass(frozen=True)
class Prepared:
    """The new version of the pipeline lies in the plan log, and everything it needs is in place."""

    id: int
    plan: int


@dataclass(frozen=True)
class BoundaryReached:
    """The epoch before this one has ended; this one has not begun."""

    epoch: int


@dataclass(frozen=True)
class EpochCommitted:
    epoch: int


@dataclass(frozen=True)
class EpochFailed:
    epoch: int
    reason: str


@dataclass(frozen=True)
class GuardTripped:
    """What was promised of an applied change does not hold."""

    id: int
    reason: str


Event: TypeAlias = (
    Submitted
    | CancelAsked
    | FoundValid
    | FoundInvalid
    | Prepared
    | BoundaryReached
    | EpochCommitted
    | EpochFailed
    | GuardTripped
)


@dataclass(frozen=True)
class Record:
    """Write this down, durably, before doing what comes after it."""

    id: int
    phase: Phase
    at: float
    undoes: int | None = None
    plan: int | None = None
    epoch: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Validate:
    id: int


@dataclass(frozen=True)
class Prepare:
    id: int


@dataclass(frozen=True)
class RunEpoch:
    """Run the epoch with this version of the pipeline."""

    epoch: int
    plan: int


@dataclass(frozen=True)
class Undo:
    """Submit a modification that takes this one back."""

    id: int
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """The epoch failed, and no change is to blame: the run ends with its error."""

    epoch: int


Instruction: TypeAlias = Record | Validate | Prepare | RunEpoch | Undo | GiveUp
