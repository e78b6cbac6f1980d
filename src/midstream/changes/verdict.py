"""The verdict on a change before it is applied: what happens to every step, what it moves, how long it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from midstream.changes.fate import Fate


class Edit(StrEnum):
    """What a change does to a step."""

    SAME = "same"
    REPLACED = "replaced"
    RESCALED = "rescaled"
    REWIRED = "rewired"
    NEW = "new"
    REMOVED = "removed"


_MARKS = {Edit.SAME: " ", Edit.REPLACED: "~", Edit.RESCALED: "~", Edit.REWIRED: "~", Edit.NEW: "+", Edit.REMOVED: "-"}


@dataclass(frozen=True)
class StepVerdict:
    """One step: what it reads, what is done to it, what becomes of its state and how many bytes that is."""

    id: str
    kind: str
    edit: Edit
    inputs: tuple[str, ...]
    inputs_before: tuple[str, ...] = ()
    state: Fate = Fate.NONE
    state_bytes: int = 0
    moved_bytes: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        reads = f" ← {', '.join(self.inputs)}" if self.inputs else ""
        if self.edit is Edit.REWIRED:
            reads += f" (was {', '.join(self.inputs_before)})"
        told = "" if self.edit is Edit.SAME else f"  {self.edit}"
        state = "" if self.state is Fate.NONE else f"  state {self.state} ({in_bytes(self.state_bytes)})"
        notes = f": {'; '.join(self.notes)}" if self.notes else ""
        return f"{_MARKS[self.edit]} {self.id} [{self.kind}]{reads}{told}{state}{notes}"


@dataclass(frozen=True)
class DryRun:
    """The new version tried on rows of the last epoch, its results thrown away. `skipped` says why it was not."""

    rows: int = 0
    milliseconds: float = 0.0
    skipped: str | None = None

    def __str__(self) -> str:
        if self.skipped:
            return f"not tried: {self.skipped}"
        return f"tried on {self.rows:,} rows of the last epoch in {self.milliseconds:,.0f} ms"


@dataclass(frozen=True)
class Verdict:
    """What a change would do. Nothing was touched to find out; print it to read it as a diff of the graph."""

    change: str
    steps: tuple[StepVerdict, ...]
    expected_pause_ms: float
    hand_over: bool = False
    dry_run: DryRun = DryRun()

    @property
    def moved_bytes(self) -> int:
        """Bytes of state other partitions read from now on. None of them are rewritten."""
        return sum(step.moved_bytes for step in self.steps)

    @property
    def losses(self) -> tuple[str, ...]:
        """What would be lost, step by step. Applying it needs `allow_state_loss=True`."""
        return tuple(f"'{s.id}': {'; '.join(s.notes) or 'all of it'}" for s in self.steps if s.state is Fate.LOST)

    def step(self, id: str) -> StepVerdict:
        return next(step for step in self.steps if step.id == id)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.change
        yield from (f"  {step}" for step in self.steps)
        yield f"moves {in_bytes(self.moved_bytes)}, expected pause {self.expected_pause_ms:,.0f} ms, {self.dry_run}"
        if self.hand_over:
            yield "Spark's query is started again for it, in one hand-over; state stays as it is"
        if self.losses:
            yield f"LOSES STATE of {' and '.join(self.losses)}: needs allow_state_loss=True"


def in_bytes(count: int) -> str:
    """
    >>> in_bytes(0), in_bytes(2_500), in_bytes(3_100_000_000)
    ('0 B', '2.5 kB', '3.1 GB')
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
