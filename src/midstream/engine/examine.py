"""Examining a changed pipeline before anything is touched: does it fit, what becomes of state, does it run at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from midstream.changes.compare import DRAINED, compare
from midstream.changes.fate import Fate, TableFate, table_fate
from midstream.changes.settings import Settings
from midstream.changes.verdict import DryRun, Edit, StepVerdict, Verdict
from midstream.engine.compile import Compiled, compile_pipeline
from midstream.engine.execute import execute
from midstream.engine.failure import as_midstream_error
from midstream.engine.jobs import NamedJobs
from midstream.engine.limits import TimeLimit
from midstream.engine.loops import rows_under_way
from midstream.engine.reports import ReportBox
from midstream.engine.sources import sample
from midstream.engine.version import Fork, TableName, Version
from midstream.engine.workers import replace_lost
from midstream.errors import ChangeError, MidstreamError
from midstream.graph.pipeline import Pipeline
from midstream.schemas import differences, to_arrow
from midstream.sinks.base import StageOptions
from midstream.state.collector import DRY_RUNS
from midstream.state.conversion import Conversion
from midstream.state.hashspace import WHOLE, HashRange, even_ranges
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, StepState
from midstream.state.overlay import Overlay
from midstream.state.tables import TableSpec
from midstream.task.staging import StageTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE_ROWS = 1000
REMOTE_SAMPLE_ROWS = 32
"""With state in a remote store: each key may need a block of it that is not at hand where the trial runs."""
MOST_PARTITIONS = 4
"""Of a step in a trial. Each is a task that takes its turn with those of the stream."""


@dataclass(frozen=True)
class Wish:
    """A pipeline that is wanted instead of the current one, and what is to be known about the way to it.

    `renames` and `codes` say by step how its state is converted; `back` is the way back of an undo, on which `restored`
    is state that steps get back.
    """

    text: str
    pipeline: Pipeline
    renames: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    codes: Mapping[str, bytes] = field(default_factory=dict)
    restored: Mapping[str, StepState] = field(default_factory=dict)
    back: bool = False
    settings: Settings = field(default_factory=Settings)
    hand_over: bool = False
    may_lose: bool = False
    drains: frozenset[str] = frozenset()
    """Steps whose open windows give what they have in the epoch before."""
    time_limit: float = 60.0


@dataclass(frozen=True)
class Examined:
    """A wish that can be granted."""

    wish: Wish
    compiled: Compiled
    conversions: Mapping[TableName, Conversion]
    verdict: Verdict
    fork: Fork | None = None


class Examiner:
    """Looks at wishes beside the stream, which goes on meanwhile."""

    def __init__(self, spark: SparkSession, ledger: Ledger) -> None:
        self._spark = spark
        self._ledger = ledger
        self._box = ReportBox.of(spark, ledger.store)

    def examine(
        self,
        wish: Wish,
        current: Version,
        sources: Mapping[str, DataFrame],
        last: Manifest,
        batch: DataFrame | None,
        expected_pause_ms: float,
    ) -> Examined:
        """Everything that can be found out about a wish. Raises what makes it impossible."""
        if wish.drains and wish.hand_over:
            raise ChangeError.drain_with_hand_over(wish.text)
        compiled = compile_pipeline(wish.pipeline, sources, self._spark, current.compiled)
        if not wish.back:  # on the way back, sinks get what they had before
            _check_sinks(current.compiled, compiled)
        state = {**wish.restored, **last.steps}
        fates = {id_: _fates(id_, keyed.function.tables, state.get(id_), wish) for id_, keyed in compiled.keyed.items()}
        conversions = {(i, t): f.conversion for i, tables in fates.items() for t, f in tables.items() if f.conversion}
        targets = {
            id_: StageTarget(id_, self._ledger.store, to_arrow(sink.schema), StageOptions(files=False))
            for id_, sink in compiled.sinks.items()
        }
        version = Version(0, compiled, current.feed, targets, {}, conversions, wish.restored, may_lose=True, trial=True)
        steps = tuple(
            compare(
                current.compiled.pipeline,
                wish.pipeline,
                last.steps,
                fates,
                {id_: version.ranges(id_) for id_ in compiled.keyed},
                wish.drains,
                rows_under_way(current.compiled.pipeline, last),
            )
        )
        verdict = Verdict(
            change=wish.text,
            steps=steps,
            expected_pause_ms=expected_pause_ms,
            hand_over=wish.hand_over,
        )
        if verdict.hand_over:
            dry_run = DryRun(skipped="it reads other sources than the last epoch did")
        elif _does_nothing_new(steps) and not conversions:
            dry_run = DryRun(skipped="no step does anything new")
        elif _only_cuts(steps) and not conversions and not self._runs_in_driver:
            # A trial would have Spark compile what it will run on one of the executors, and wait for its turn there.
            dry_run = DryRun(skipped="only partitions change")
        else:
            dry_run = self._dry_run(version, wish, verdict, last, batch, current.compiled)
        verdict = replace(verdict, dry_run=dry_run)
        return Examined(wish, compiled, conversions, verdict)

    @property
    def _runs_in_driver(self) -> bool:
        return str(self._spark.conf.get("spark.master", "")).partition("[")[0] == "local"

    def _sample_rows(self, verdict: Verdict, version: Version) -> int:
        if _only_cuts(verdict.steps) and not version.conversions:
            return 1
        return SAMPLE_ROWS if self._ledger.store.local_path("segments") is not None else REMOTE_SAMPLE_ROWS

    def _dry_run(
        self,
        version: Version,
        wish: Wish,
        verdict: Verdict,
        last: Manifest,
        batch: DataFrame | None,
        running: Compiled,
    ) -> DryRun:
        """Run rows of the last epoch through the new version, on the state as it is, and throw the results away."""
        if batch is None:
            return DryRun(skipped="no epoch has been run yet")
        name = uuid.uuid4().hex
        aside = Overlay(self._ledger.store, f"{DRY_RUNS}/{name}")
        jobs = NamedJobs(batch.sparkSession, f"midstream-dry-run-{name}", f"midstream dry run: {wish.text}")
        clock = time.perf_counter()
        try:
            rows = sample(batch, [s.id for s in wish.pipeline.sources], self._sample_rows(verdict, version))
            with jobs, TimeLimit(jobs.cancel, wish.time_limit) as limit:
                try:
                    before = _in_few_partitions(version.state_after(last), verdict)
                    reports = execute(version, aside, self._box, rows, last.epoch + 1, before, last.times).reports
                except Exception as cause:
                    expired = limit.expired
                    if not isinstance(cause, MidstreamError):
                        replace_lost(batch.sparkSession, running, jobs)
                    if expired:
                        changed = [s.id for s in verdict.steps if s.edit in (Edit.REPLACED, Edit.NEW)]
                        raise ChangeError.too_slow("The dry run", limit.seconds, changed) from cause
                    raise ChangeError.dry_run_failed(as_midstream_error(cause, self._ledger)) from cause
        finally:
            aside.clear()
        tried = max((sum(r.rows for r in of_step) for of_step in reports.values()), default=0)
        return DryRun(tried, (time.perf_counter() - clock) * 1000)


def _only_cuts(steps: Sequence[StepVerdict]) -> bool:
    """Whether all that changes is which partition has what. A row is enough then: Spark compiles what it will run."""
    return all(step.edit in (Edit.SAME, Edit.RESCALED) for step in steps)


def _does_nothing_new(steps: Sequence[StepVerdict]) -> bool:
    """Whether a change is one of settings alone."""
    return all(step.edit is Edit.SAME for step in steps)


def _in_few_partitions(state: Mapping[str, StepState], verdict: Verdict) -> dict[str, StepState]:
    """State for the trial of a few rows: one partition will do, except where partitions are what changes, so that what
    Spark compiles for them is there when the change is applied."""
    rescaled = {step.id for step in verdict.steps if step.edit is Edit.RESCALED}

    def ranges(id_: str, wanted: tuple[HashRange, ...]) -> tuple[HashRange, ...]:
        if id_ not in rescaled:
            return (WHOLE,)
        return wanted if len(wanted) <= MOST_PARTITIONS else even_ranges(MOST_PARTITIONS)

    return {id_: replace(step, ranges=ranges(id_, step.ranges)) for id_, step in state.items()}


def _check_sinks(before: Compiled, after: Compiled) -> None:
    """A sink that stays must not lose columns, nor get them in another type: what was written has them."""
    for id_, sink in after.sinks.items():
        known = before.sinks.get(id_)
        if known is None or known.step.sink is not sink.step.sink or sink.step.sink.describe().get("kind") == "noop":
            continue
        old, new = to_arrow(known.schema), to_arrow(sink.schema)
        added = [field for field in new if field.name not in old.names]
        told = differences(old, pa.schema([field for field in new if field not in added]))
        if told:
            raise ChangeError.sink_schema(id_, told)


def _fates(id_: str, tables: Sequence[TableSpec], state: StepState | None, wish: Wish) -> dict[str, TableFate]:
    """What becomes of each table of a step, those included that go."""
    fates: dict[str, TableFate] = {}
    known = state.tables if state else {}
    for spec in tables:
        if spec.name not in known:
            fates[spec.name] = TableFate(Fate.NEW)
            continue
        if id_ in wish.drains:
            fates[spec.name] = TableFate(Fate.NEW, (DRAINED,))
            continue
        before, rename, code = known[spec.name], wish.renames.get(id_, {}), wish.codes.get(id_)
        fate = table_fate(before.spec, spec, rename, code, wish.back)
        # A table without rows has nothing to lose.
        fates[spec.name] = fate if before.rows or fate.fate is not Fate.LOST else TableFate(Fate.NEW)
    for name, table in known.items():
        if name not in fates and table.rows and id_ not in wish.drains:
            fates[name] = TableFate(Fate.LOST, (f"the table '{name}' goes",))
    return fates
