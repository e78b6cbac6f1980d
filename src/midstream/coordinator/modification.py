"""The life of a change: its phases, when each began, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """Where a modification is. The first five are under way, the others are ends; `applied` may still be undone."""

    PROPOSED = "proposed"
    VALIDATED = "validated"
    PREPARING = "preparing"
    WAITING = "waiting"
    APPLYING = "applying"
    APPLIED = "applied"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    UNDONE = "undone"


UNDER_WAY = (Phase.PROPOSED, Phase.VALIDATED, Phase.PREPARING, Phase.WAITING, Phase.APPLYING)


class Instance(StrEnum):
    """Where a partition of a touched step is. At an epoch's end all of them are paused at once: that is the barrier."""

    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESTORING = "restoring"


@dataclass(frozen=True)
class Modification:
    """One change on its way into the running pipeline, or out of it again (`undoes` names the one it takes back).

    `plan` is the version of the pipeline it makes, `epoch` the first one run with it.
    """

    id: int
    phase: Phase
    undoes: int | None = None
    plan: int | None = None
    epoch: int | None = None
    reason: str | None = None
    times: Mapping[Phase, float] = field(default_factory=dict)

    @property
    def is_under_way(self) -> bool:
        return self.phase in UNDER_WAY

    @property
    def instance(self) -> Instance:
        """The state of the instances of every step this modification touches."""
        if self.phase is Phase.WAITING:
            return Instance.PAUSING
        return Instance.RESTORING if self.phase is Phase.APPLYING else Instance.RUNNING

    @property
    def seconds(self) -> dict[str, float]:
        """How long each part took: `submit` (checking and preparing), `wait` (for the barrier), `perform`, `total`."""
        ended = self.times.get(Phase.APPLIED, self.times.get(Phase.ROLLED_BACK))
        marks = {
            "submit": (self.times.get(Phase.PROPOSED), self.times.get(Phase.WAITING)),
            "wait": (self.times.get(Phase.WAITING), self.times.get(Phase.APPLYING)),
            "perform": (self.times.get(Phase.APPLYING), ended),
            "total": (self.times.get(Phase.PROPOSED), ended),
        }
        return {name: end - begin for name, (begin, end) in marks.items() if begin is not None and end is not None}
