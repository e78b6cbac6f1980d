"""Guards: what was promised of a changed step, looked at in the epochs after the change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from midstream.changes.change import Change, Guard, Insert, Replace, single_changes
from midstream.coordinator.modification import Modification, Phase
from midstream.task.userfn import raised_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from midstream.engine.changelog import ChangeLog


@dataclass(frozen=True)
class Observation:
    """What a guard saw of a step's output in one epoch. `complaint` is why its own check did not like it."""

    rows: int = 0
    errors: int = 0
    complaint: str | None = None


def guards_of(change: Change | None) -> Iterator[tuple[str, Guard]]:
    """The guards that a change carries, each with the step it is for."""
    for single in single_changes(change) if change is not None else []:
        if isinstance(single, Replace | Insert) and single.guard is not None:
            yield single.target, single.guard


def watched(modifications: Iterable[Modification], log: ChangeLog, epoch: int) -> list[tuple[int, str, Guard]]:
    """Guards that watch an epoch: the modification they came with, the step, and what is promised of it."""
    return [
        (m.id, step, guard)
        for m in modifications
        if m.phase in (Phase.APPLYING, Phase.APPLIED) and m.epoch is not None
        for step, guard in guards_of(log.submission(m.id).change)
        if m.epoch <= epoch < m.epoch + guard.epochs
    ]


def observe(output: DataFrame, guard: Guard) -> Observation:
    """Look at an epoch's output of a step, which is kept and costs no second run."""
    rows = errors = 0
    if guard.errors is not None:
        counted = output.agg(F.count("*"), F.count_if(F.expr(guard.errors))).collect()[0]
        rows, errors = int(counted[0]), int(counted[1])
    return Observation(rows, errors, _complaint(output, guard))


def _complaint(output: DataFrame, guard: Guard) -> str | None:
    if guard.check is None:
        return None
    try:
        return None if guard.check(output) else "its check said no"
    except Exception as error:
        return f"its check raised {type(error).__name__} (at {raised_at(error, guard.check)}): {error}"


def broken_promise(step: str, guard: Guard, seen: Observation | None, epoch_ms: float) -> str | None:
    """Why a promise does not hold, or None when it does."""
    if guard.max_epoch_ms is not None and epoch_ms > guard.max_epoch_ms:
        return f"the epoch took {epoch_ms:,.0f} ms, promised were {guard.max_epoch_ms:,.0f} at most"
    if seen is None:
        return None
    if seen.complaint:
        return f"the output of '{step}' is not what was promised: {seen.complaint}"
    if seen.rows and seen.errors / seen.rows > guard.error_rate:
        rate = f"{seen.errors:,} of {seen.rows:,} rows"
        return f"'{step}' gave {rate} for which {guard.errors} holds, promised were {guard.error_rate:.2%} at most"
    return None
