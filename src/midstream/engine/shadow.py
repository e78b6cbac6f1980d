"""A shadow: a new version run beside the old on the same epochs, on a fork of the state; its output goes nowhere.

Segments are immutable, so a fork is a list of them. The shadow adds its own, which no manifest names until it is
promoted; they and what it shares are pinned, so that no collection takes them away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from midstream.changes.difference import Difference, difference
from midstream.changes.verdict import Verdict
from midstream.coordinator.modification import Modification
from midstream.engine.examine import Examined
from midstream.engine.execute import execute, written_bytes
from midstream.engine.failure import as_midstream_error
from midstream.engine.loops import returned
from midstream.engine.reports import ReportBox
from midstream.engine.version import Version
from midstream.errors import ChangeError
from midstream.schemas import to_arrow
from midstream.sinks.base import StageOptions
from midstream.sinks.staging import Folder, read_table
from midstream.state.collector import SHADOWS
from midstream.state.hashspace import WHOLE, HashRange
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, SourceTime, StagedFile, StepState
from midstream.state.reader import PartitionSnapshot
from midstream.task.report import TaskReport
from midstream.task.staging import StageTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPARED_ROWS = 100_000
"""Rows of an epoch or of a table that are compared; of larger ones a part is, the same keys on both sides."""


@dataclass(frozen=True)
class ShadowReport:
    """What a shadow has found so far. Print it to read it."""

    change: str
    epochs: int
    outputs: Mapping[str, Difference]
    state: Mapping[str, Difference]
    epoch_ms: float
    shadow_ms: float
    written_bytes: int
    error: str | None = None

    def __str__(self) -> str:
        lines = [f"shadow of {self.change}: {self.epochs} epochs"]
        lines += [f"  output {sink}: {found}" for sink, found in self.outputs.items()]
        lines += [f"  state {step}: {found}" for step, found in self.state.items()]
        for found in (*self.outputs.values(), *self.state.values()):
            lines += [f"    {old} → {new}" for old, new in found.samples]
        lines.append(
            f"  costs {self.shadow_ms:,.0f} ms an epoch beside {self.epoch_ms:,.0f}, {self.written_bytes:,} bytes"
        )
        return "\n".join([*lines, f"  ended: {self.error}"] if self.error else lines)


@dataclass
class ShadowRun:
    """The driver's side of a shadow, called by the stream's thread in every epoch. It never fails an epoch."""

    examined: Examined
    base: Version
    ledger: Ledger
    box: ReportBox
    name: str
    error: str | None = None
    epoch: int | None = None
    state: dict[str, StepState] = field(default_factory=dict)
    times: Mapping[str, SourceTime] = field(default_factory=dict)
    outputs: dict[str, Difference] = field(default_factory=dict)
    _old_ms: list[float] = field(default_factory=list)
    _new_ms: list[float] = field(default_factory=list)
    _written: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _version: Version = field(init=False)
    _aside: Folder = field(init=False)

    def __post_init__(self) -> None:
        compiled = self.examined.compiled
        self._aside = Folder(self.ledger.store, f"{SHADOWS}/{self.name}")
        targets = {
            id_: StageTarget(id_, Folder(self._aside, id_), to_arrow(sink.schema), StageOptions())
            for id_, sink in compiled.sinks.items()
        }
        conversions, restored = self.examined.conversions, self.examined.wish.restored
        self._version = Version(0, compiled, self.base.feed, targets, {}, conversions, restored, may_lose=True)

    def run(
        self,
        batch: DataFrame,
        epoch: int,
        last: Manifest,
        current: Version,
        reports: Mapping[str, list[TaskReport]],
        old_ms: float,
    ) -> None:
        """Run an epoch once more with the new version, and compare."""
        if self.error is None and current is not self.base:
            self.error = "the pipeline it was to be compared with has changed"
        if self.error is not None:
            return
        clock = time.perf_counter()
        try:
            state = self.state if self.epoch is not None else self._version.state_after(last)
            times = self.times if self.epoch is not None else last.times
            loops = returned(current, last)
            done = execute(self._version, self.ledger.store, self.box, batch, epoch, state, times, loops=loops)
            found = {sink: self._compare(sink, current, reports, done.reports) for sink in current.compiled.sinks}
        except Exception as error:
            self.error = str(as_midstream_error(error, self.ledger))
            return
        finally:
            self._aside.delete([item.path for item in self._aside.list("")])
        with self._lock:
            self.state, self.times = done.after(state), done.times
            self.epoch = epoch
            self._old_ms.append(old_ms)
            self._new_ms.append((time.perf_counter() - clock) * 1000)
            self._written += written_bytes(done.reports)
            for sink, difference_ in found.items():
                self.outputs[sink] = self.outputs.get(sink, Difference()) + difference_

    def _compare(
        self,
        sink: str,
        current: Version,
        old: Mapping[str, list[TaskReport]],
        new: Mapping[str, list[TaskReport]],
    ) -> Difference:
        if sink not in self._version.targets:
            return Difference(rows_old=sum(file.rows for file in _staged(sink, old)))
        before = _rows(current.targets[sink], _staged(sink, old))
        after = _rows(self._version.targets[sink], _staged(sink, new))
        return difference(before, after, current.compiled.sinks[sink].keys)

    def pinned(self) -> set[str]:
        """Files that must stay as long as the shadow does."""
        with self._lock:
            return {s.path for step in self.state.values() for table in step.tables.values() for s in table.segments}

    def state_at(self, epoch: int) -> dict[str, StepState] | None:
        """Its state, when it has seen exactly the epochs up to one."""
        with self._lock:
            return dict(self.state) if self.error is None and self.epoch == epoch else None

    def report(self, last: Manifest) -> ShadowReport:
        with self._lock:
            state, old_ms, new_ms = dict(self.state), list(self._old_ms), list(self._new_ms)
            outputs, written = dict(self.outputs), self._written
        return ShadowReport(
            change=self.examined.wish.text,
            epochs=len(new_ms),
            outputs=outputs,
            state={id_: self._state_difference(id_, last, step) for id_, step in state.items() if id_ in last.steps},
            epoch_ms=median(old_ms) if old_ms else 0.0,
            shadow_ms=median(new_ms) if new_ms else 0.0,
            written_bytes=written,
            error=self.error,
        )

    def _state_difference(self, id_: str, last: Manifest, mine: StepState) -> Difference:
        """Tables that both have, compared in a part of the hash space when they are large."""
        theirs, found = last.steps[id_], Difference()
        rows = max(theirs.rows, mine.rows)
        part = WHOLE
        if rows > _COMPARED_ROWS:
            part = HashRange(WHOLE.start, WHOLE.start + max(2**40, 2**64 * _COMPARED_ROWS // rows))
        for name, table in mine.tables.items():
            if name in theirs.tables:
                old = _scan(self.ledger, theirs, name, part)
                new = _scan(self.ledger, mine, name, part)
                found += difference(old, new, table.spec.keys.names)
        return found


def _scan(ledger: Ledger, step: StepState, table: str, part: HashRange) -> pa.Table:
    pieces = list(PartitionSnapshot(ledger.store, step.tables, part).scan(table))
    return pa.concat_tables(pieces) if pieces else step.tables[table].spec.schema.empty_table()


def _staged(sink: str, reports: Mapping[str, list[TaskReport]]) -> list[StagedFile]:
    return [r.staged[sink] for of_step in reports.values() for r in of_step if sink in r.staged]


def _rows(target: StageTarget, files: list[StagedFile]) -> pa.Table:
    if any(not file.path for file in files):
        # The sink keeps no rows; there is nothing to compare but their number.
        return pa.table({"rows": pa.nulls(sum(file.rows for file in files))})
    return read_table(target.store, files, target.schema)


@dataclass
class Shadow:
    """The handle on a shadow: look at what it finds, then make it the plan or drop it."""

    verdict: Verdict
    _run: ShadowRun
    _last: Callable[[], Manifest]
    _promote: Callable[..., Modification]
    _discard: Callable[[], None]

    @property
    def name(self) -> str:
        return self._run.name

    @property
    def epochs(self) -> int:
        """How many epochs it has run so far."""
        return len(self._run._new_ms)

    def report(self) -> ShadowReport:
        """How output and state differ so far, and what it costs."""
        return self._run.report(self._last())

    def promote(self, *, wait: bool = True, timeout: float | None = None) -> Modification:
        """Make it the plan at the next boundary, with the state it has built."""
        if self._run.error is not None:
            raise ChangeError.shadow_ended(self._run.error)
        return self._promote(wait=wait, timeout=timeout)

    def discard(self) -> None:
        """End it and leave nothing behind."""
        self._discard()
