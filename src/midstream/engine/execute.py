"""Running an epoch's rows through a version, in one round or two.

In the first round the rows are processed; how far event time has come is known then. If windows are over by it, a
second round without rows lets them give their results, and what is behind them takes those up in the same epoch. Keys
in parts give their results in rounds of the same kind (`engine/joining.py`). All rounds are committed together.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from midstream.aggregates.parts import Joined
from midstream.changes.settings import FetchPolicy
from midstream.engine.dataflow import Dataflow
from midstream.engine.joining import Pending
from midstream.engine.loops import Returned
from midstream.engine.placer import ANYWHERE, Places
from midstream.engine.reports import ReportBox, UnclearReportsError
from midstream.engine.version import Version
from midstream.engine.windows import sources_above
from midstream.eventtime.watermarks import Mark, advanced, reached
from midstream.state.heat import Heat
from midstream.state.manifest import SourceTime, StepState, with_range_delete
from midstream.state.reader import Fetch
from midstream.state.store import Store
from midstream.state.tables import Times
from midstream.task.ahead import Ahead
from midstream.task.report import TaskReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Reports: TypeAlias = Mapping[str, list[TaskReport]]
"""What tasks did, by step."""

_FETCHED = {FetchPolicy.ORDER_UNAWARE: Fetch.UP_TO_OWN, FetchPolicy.ALL_AT_ONCE: Fetch.ALL}
"""What of its state a task has at hand before it looks at its rows: nothing but with these."""

_TRIES = 3
_END_OF_TIME = 253_402_300_799_000_000
"""The last second of the year 9999, in microseconds since 1970."""


@dataclass(frozen=True)
class Executed:
    """What the tasks of an epoch did, by step, and how far event time has come. Nothing of it is real yet."""

    epoch: int
    reports: Mapping[str, list[TaskReport]]
    times: Mapping[str, SourceTime] = field(default_factory=dict)
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    dues: Mapping[str, int | None] = field(default_factory=dict)

    def after(self, before: Mapping[str, StepState]) -> dict[str, StepState]:
        """The state of the epoch, given that of the one before."""
        steps = with_reports(before, self.reports, self.epoch)
        for id_, watermark in self.watermarks.items():
            steps[id_] = replace(steps[id_], watermark=watermark, due=self.dues.get(id_))
        return steps


def execute(
    version: Version,
    store: Store,
    box: ReportBox,
    batch: DataFrame,
    epoch: int,
    state: Mapping[str, StepState],
    times: Mapping[str, SourceTime],
    places: Places = ANYWHERE,
    loops: Mapping[str, Returned] = MappingProxyType({}),
    ahead: Mapping[str, Ahead] = MappingProxyType({}),
) -> Executed:
    """Run rows through a version, given the state and the times of its sources at the epoch before, and the rows that
    were fed back in it. Its tasks begin to bring what is `ahead`."""
    clock = time.time()
    marks, clocked = _marks(version), _clocked(version)
    version.preaggregation.begin({id_ for id_, step in state.items() if step.splits})
    in_parts = any(state[id_].splits or keyed.step.splits for id_, keyed in version.compiled.keyed.items())

    a_round = partial(_Round, version, store, box, epoch, places)

    def joined(so_far: Reports, among: Reports, times: Mapping[str, Times] = MappingProxyType({})) -> Reports:
        """The rounds for keys in parts that what happened `among` all so far calls for."""
        if not in_parts or version.trial:
            return {}
        quiet = {id_: replace(step, firing=False) for id_, step in times.items()}
        more: Reports = {}
        now = with_reports(state, so_far, epoch)
        pending = Pending.of(version, now, among)
        while (found := pending.next(now)) is not None:
            only, work = found
            of_round = a_round(now, quiet, only, joined=work).run(batch)
            more = _both(more, of_round)
            now = with_reports(state, _both(so_far, more), epoch)
            pending.done(work, of_round)
        return more

    if not marks and not clocked:
        of_rows = a_round(state, loops=loops, ahead=ahead).run(batch)
        return Executed(epoch, _both(of_rows, joined(of_rows, of_rows)))
    before = _watermarks(version, state, times, clock)
    # Timers by the clock need not wait for what the rows tell of time.
    fired = {id_ for id_ in clocked if _is_reached(state[id_].due, before[id_]) and not version.trial}
    first = a_round(
        state,
        {
            id_: Times(state[id_].watermark if id_ in clocked else w, w, firing=id_ in fired)
            for id_, w in before.items()
        },
        loops=loops,
        ahead=ahead,
    )
    of_rows = first.run(batch)
    reports = _both(of_rows, joined(of_rows, of_rows, first.times))
    times = advanced(times, marks, first.latest, clock)
    dues = {**_dues(before, state, reports), **_told(fired, reports)}
    done = Executed(epoch, reports, times, _watermarks(version, state, times, clock), dues)
    over = {id_ for id_, due in dues.items() if id_ not in clocked and _is_reached(due, done.watermarks[id_])}
    drained = version.draining & set(done.watermarks)
    over |= drained
    if not over or version.trial:
        return done
    behind = version.compiled.pipeline.behind(over)
    second = a_round(
        done.after(state),
        {
            id_: Times(
                before[id_],
                _END_OF_TIME if id_ in drained else now,
                firing=id_ in drained or (id_ in behind and id_ not in clocked),
            )
            for id_, now in done.watermarks.items()
        },
        behind,
    )
    of_due = second.run(batch)
    firing = {id_ for id_ in done.watermarks if id_ in behind}
    by_clock = (firing & clocked) - drained
    late = {id_: _least([dues[id_], *(report.due for report in of_due[id_])]) for id_ in by_clock}
    dues |= {**_told(firing - by_clock, of_due), **late}
    last = joined(_both(reports, of_due), of_due, second.times)
    dues |= {id_: _least([dues[id_], *(report.due for report in last[id_])]) for id_ in dues.keys() & last.keys()}
    return replace(done, reports=_both(_both(reports, of_due), last), dues=dues)


@dataclass
class _Round:
    """One run of the dataflow: with the rows of the epoch, or without rows for the steps `only`."""

    version: Version
    store: Store
    box: ReportBox
    epoch: int
    places: Places
    state: Mapping[str, StepState]
    times: Mapping[str, Times] = field(default_factory=dict)
    only: Set[str] | None = None
    joined: Mapping[str, Joined] = field(default_factory=dict)
    loops: Mapping[str, Returned] = field(default_factory=dict)
    ahead: Mapping[str, Ahead] = field(default_factory=dict)
    latest: dict[str, int | None] = field(default_factory=dict)
    """The latest event time of each source that has one."""

    def run(self, batch: DataFrame) -> dict[str, list[TaskReport]]:
        version = self.version
        ran = [id_ for id_ in self.state if self.only is None or id_ in self.only]
        partitions = {id_: len(self.state[id_].ranges) for id_ in ran}
        for attempt in range(_TRIES):
            run = uuid.uuid4().hex
            flow = Dataflow(
                compiled=version.compiled,
                store=self.store,
                targets=version.targets,
                run=run,
                epoch=self.epoch,
                state=self.state,
                grouped=version.preaggregation.grouped if self.only is None else {},
                send=self.box.send,
                reused=version.reused,
                careful=version.careful,
                trial=version.trial,
                places=self.places,
                fetch=_FETCHED.get(version.settings.fetch_policy, Fetch.NOTHING),
                ahead=self.ahead,
                watched=version.watched if self.only is None else {},
                times=self.times,
                loops=self.loops,
                only=self.only,
                joined=self.joined,
            )
            flow.execute(batch)
            if self.only is None:
                version.observed = flow.observed
            self.latest = flow.latest
            try:
                return self.box.drain(run, partitions)
            except UnclearReportsError as unclear:
                # A keyed step ran twice (lost shuffle files, a self-join) or not to its end (a limit above it).
                # From now on its output is kept before anybody reads it.
                version.careful = True
                if attempt == _TRIES - 1:
                    raise unclear.reason from unclear
        raise AssertionError("unreachable")


def _marks(version: Version) -> dict[str, Mark]:
    """The watermarks of the sources that have one."""
    return {
        source.id: Mark(source.watermark.delay, source.watermark.idle_after)
        for source in version.compiled.pipeline.sources
        if source.watermark is not None
    }


def _clocked(version: Version) -> set[str]:
    """The steps with timers that go by the clock on the wall."""
    return {id_ for id_, keyed in version.compiled.keyed.items() if keyed.step.is_clocked}


def _watermarks(
    version: Version, state: Mapping[str, StepState], times: Mapping[str, SourceTime], clock: float
) -> dict[str, int | None]:
    """By step that goes by a time, how far that has come: that of events, or that of the clock, in seconds."""
    marks, found = _marks(version), dict[str, int | None]()
    for id_, keyed in version.compiled.keyed.items():
        before = state[id_].watermark
        if keyed.step.is_clocked:
            now = int(clock * 1_000_000)
            found[id_] = now if before is None else max(before, now)
        elif keyed.is_timed:
            above = [times.get(source, SourceTime()) for source in sources_above(keyed.step) if source in marks]
            found[id_] = reached(before, above)
    return found


def _dues(
    timed: Iterable[str], state: Mapping[str, StepState], reports: Mapping[str, list[TaskReport]]
) -> dict[str, int | None]:
    """By step, when the first of what it has in its state is due, after a round that did nothing that was due."""
    return {id_: _least([state[id_].due, *(report.due for report in reports.get(id_, []))]) for id_ in timed}


def _told(fired: Iterable[str], reports: Mapping[str, list[TaskReport]]) -> dict[str, int | None]:
    """The same after a round in which steps did what was due: they have looked at all of their state."""
    return {id_: _least(report.due for report in reports[id_]) for id_ in fired}


def _least(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)


def _is_reached(due: int | None, watermark: int | None) -> bool:
    return due is not None and watermark is not None and due <= watermark


def _both(reports: Reports, more: Reports) -> dict[str, list[TaskReport]]:
    return {id_: [*reports.get(id_, []), *more.get(id_, [])] for id_ in {**reports, **more}}


def with_reports(before: Mapping[str, StepState], reports: Reports, epoch: int) -> dict[str, StepState]:
    """The state of steps with what their tasks have written."""
    return {id_: with_writes(step, reports.get(id_, []), epoch) for id_, step in before.items()}


def with_writes(step: StepState, reports: list[TaskReport], epoch: int) -> StepState:
    """A step's tables with the deltas of an epoch, and its heat with the rows of it."""
    tables = dict(step.tables)
    for name, table in step.tables.items():
        writes = [report.tables[name] for report in reports if name in report.tables]
        table = replace(
            table,
            segments=(*table.segments, *(write.segment for write in writes if write.segment)),
            rows=table.rows + sum(write.added - write.removed for write in writes),
        )
        bounds = [write.delete_below for write in writes if write.delete_below is not None]
        tables[name] = with_range_delete(table, max(bounds), epoch) if bounds else table  # type: ignore[type-var]
    heat = (step.heat or Heat.none()).after(report.heat for report in reports if report.heat is not None)
    hot = step.hot.after((report.hot for report in reports), step.splits)
    told = [report.splits for report in reports if report.splits is not None]
    splits = tuple(sorted(split for of_task in told for split in of_task)) if told else step.splits
    return replace(step, tables=tables, heat=heat, hot=hot, splits=splits)


def written_bytes(reports: Mapping[str, list[TaskReport]]) -> int:
    """Bytes of state that tasks have written."""
    return sum(
        write.segment.bytes
        for of_step in reports.values()
        for report in of_step
        for write in report.tables.values()
        if write.segment
    )
