"""Running epochs: read state N-1, run the DataFrames, commit manifest N, finalise the sinks.

The manifest is the one commit point. Before it nothing is real; after it everything is, and what remains to be done
(making staged files visible) is finished by whoever comes next.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Protocol

from midstream.changes.settings import FetchPolicy
from midstream.engine.compile import Compiled
from midstream.engine.dataflow import Dataflow
from midstream.engine.epochs import EpochReport, StepReport
from midstream.engine.faults import reach
from midstream.engine.internals import ARROW_BATCH_CONF, ARROW_BATCH_ROWS
from midstream.engine.placer import ANYWHERE, Placer, Places
from midstream.engine.reports import ReportBox, UnclearReportsError
from midstream.engine.sparklog import SparkLog
from midstream.engine.version import Version
from midstream.errors import CheckpointError
from midstream.graph.steps import KeyedStep, SinkStep
from midstream.sinks.base import SinkContext, StagedEpoch
from midstream.state.compactor import Compactor
from midstream.state.heat import Heat
from midstream.state.ledger import Ledger, now
from midstream.state.manifest import Manifest, StagedFile, StepState, with_range_delete
from midstream.state.store import Store
from midstream.task.report import TaskReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from midstream.engine.shadow import ShadowRun

_TRIES = 3


class Versions(Protocol):
    """Who decides which version of the pipeline an epoch runs."""

    @property
    def current(self) -> Version:
        """The version of the last committed epoch."""
        ...

    def boundary(self, epoch: int) -> Version:
        """The version an epoch that is about to begin is to run."""
        ...

    def failed(self, epoch: int, error: Exception) -> Version:
        """The version to run the epoch with instead; raises the error when no change is to blame for it."""
        ...

    def committed(self, manifest: Manifest) -> None:
        """An epoch is real, and with it the version it was run with."""
        ...

    def sink_failed(self, context: SinkContext, staged: StagedEpoch, error: Exception) -> bool:
        """Whether a sink that cannot be written is one that a change has just put in, and goes again; if it replaces
        another, that one has got the rows."""
        ...


@dataclass(frozen=True)
class Unchanging:
    """One version for good, and nobody to ask."""

    current: Version

    def boundary(self, epoch: int) -> Version:
        return self.current

    def failed(self, epoch: int, error: Exception) -> Version:
        raise error

    def committed(self, manifest: Manifest) -> None:
        pass

    def sink_failed(self, context: SinkContext, staged: StagedEpoch, error: Exception) -> bool:
        return False


@dataclass
class EpochRunner:
    """The driver's side of an epoch. Not reentrant: Spark runs one micro-batch at a time."""

    versions: Versions
    ledger: Ledger
    compactor: Compactor
    box: ReportBox
    placer: Placer
    log: SparkLog = field(init=False)
    last: Manifest = field(init=False)
    committed: Callable[[Manifest, EpochReport], None] = field(init=False)
    batch: DataFrame | None = field(default=None, init=False)
    """The rows of the last epoch, for trying changes on."""
    shadow: ShadowRun | None = field(default=None, init=False)
    _phases: dict[str, float] = field(default_factory=dict)
    _arrow_batch_rows: int = ARROW_BATCH_ROWS

    def go_on(self, log: SparkLog) -> None:
        """Continue behind the last committed epoch; that one is finished first, in case nobody has."""
        self.log, self.last = log, log.last
        self._arrow_batch_rows = ARROW_BATCH_ROWS  # a new query has a new session
        if self.last.epoch >= 0:
            self.finalise(self.last, self.versions.current)

    def run(self, batch: DataFrame, epoch: int) -> None:
        """The `foreachBatch` callback."""
        if epoch == self.last.epoch:
            # The driver died between the manifest and Spark's own commit: the epoch is real, only finish it.
            self.log.require_offsets(self.last)
            self.finalise(self.last, self.versions.current)
            return
        if epoch != self.last.epoch + 1:
            raise CheckpointError.epoch_gap(epoch, self.last.epoch)
        started, clock = datetime.now(UTC), time.perf_counter()
        self._phases = {}
        with self._phase("run"):
            version, before, reports = self._run(batch, epoch)
        reach("executed")
        if self.shadow is not None:
            with self._phase("shadow"):
                self.shadow.run(batch, epoch, self.last, version, reports, self._phases["run"])
        with self._phase("commit"):
            manifest = self._manifest(version, epoch, before, reports)
            manifest_bytes = self.ledger.commit(manifest)
        reach("committed")
        self.versions.committed(manifest)
        with self._phase("finalise"):
            self.finalise(manifest, version)
        reach("finalised")
        self.last, self.batch = manifest, batch
        self.compactor.policies = version.policies
        self.compactor.offer(manifest.steps)
        version.preaggregation.observe(reports)
        written = manifest_bytes + written_bytes(reports)
        duration = (time.perf_counter() - clock) * 1000
        self.committed(manifest, self._report(version, manifest, reports, started, duration, written))

    def finalise(self, manifest: Manifest, version: Version) -> None:
        """Make the staged files of a committed epoch visible; harmless when done before."""
        for step in version.compiled.pipeline.sinks:
            if step.id in manifest.sinks:
                context, staged = version.contexts[step.id], StagedEpoch(manifest.epoch, manifest.sinks[step.id])
                try:
                    step.sink.finalise(context, staged)
                except Exception as error:
                    if not self.versions.sink_failed(context, staged, error):
                        raise
                reach(f"finalised:{step.id}")

    def _run(self, batch: DataFrame, epoch: int) -> tuple[Version, dict[str, StepState], dict[str, list[TaskReport]]]:
        """Run the rows through the version whose turn it is, and through the one before it when that fails."""
        version = self.versions.boundary(epoch)
        while True:
            try:
                before = version.state_after(self.last)
                self._tune(version, batch)
                places = self.placer.places(before, version.settings.rules)
                reports = execute(version, self.ledger.store, self.box, batch, epoch, before, places)
                return version, before, reports
            except Exception as error:
                version = self.versions.failed(epoch, error)

    def _tune(self, version: Version, batch: DataFrame) -> None:
        rows = version.settings.arrow_batch_rows or ARROW_BATCH_ROWS
        if rows != self._arrow_batch_rows:
            batch.sparkSession.conf.set(ARROW_BATCH_CONF, str(rows))
            self._arrow_batch_rows = rows

    def _manifest(
        self,
        version: Version,
        epoch: int,
        before: Mapping[str, StepState],
        reports: Mapping[str, list[TaskReport]],
    ) -> Manifest:
        merged = self.compactor.apply(before)
        steps = {id_: with_writes(step, reports.get(id_, []), epoch) for id_, step in merged.items()}
        sinks: dict[str, tuple[StagedFile, ...]] = {step.id: () for step in version.compiled.pipeline.sinks}
        for written in reports.values():
            for report in written:
                for sink, file in report.staged.items():
                    sinks[sink] = (*sinks[sink], file)
        return Manifest(
            checkpoint_id=self.ledger.checkpoint_id,
            epoch=epoch,
            plan=version.number,
            driver=self.ledger.driver,
            committed_at=now(),
            offsets=self.log.offsets(epoch),
            steps=steps,
            sinks=sinks,
            source_files=self.log.mirror(self.ledger.driver.generation),
            metrics={id_: _step_metrics(written) for id_, written in reports.items()},
        )

    def _report(
        self,
        version: Version,
        manifest: Manifest,
        reports: Mapping[str, list[TaskReport]],
        started: datetime,
        duration: float,
        written: int,
    ) -> EpochReport:
        steps = {}
        for id_, of_step in reports.items():
            state = manifest.steps.get(id_)
            steps[id_] = StepReport(
                rows=sum(r.rows for r in of_step),
                keys=sum(r.groups for r in of_step),
                output_rows=sum(r.output_rows for r in of_step),
                slowest_ms=max(r.milliseconds for r in of_step),
                median_ms=median(r.milliseconds for r in of_step),
                state_rows=state.rows if state else 0,
                state_bytes=state.bytes if state else 0,
                fetched_bytes=sum(r.fetched_bytes for r in of_step),
            )
        first = set(_first_readers(version.compiled))
        return EpochReport(
            epoch=manifest.epoch,
            started_at=started,
            duration_ms=duration,
            rows=sum(step.rows for id_, step in steps.items() if id_ in first),
            state_rows=manifest.state_rows,
            state_bytes=manifest.state_bytes,
            written_bytes=written,
            plan=manifest.plan,
            phases_ms=dict(self._phases),
            steps=steps,
        )

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        clock = time.perf_counter()
        yield
        self._phases[name] = (time.perf_counter() - clock) * 1000


def execute(
    version: Version,
    store: Store,
    box: ReportBox,
    batch: DataFrame,
    epoch: int,
    state: Mapping[str, StepState],
    places: Places = ANYWHERE,
) -> dict[str, list[TaskReport]]:
    """Run rows through a version; what its tasks did, by step. Nothing of it is real yet."""
    partitions = {id_: len(step.ranges) for id_, step in state.items()}
    for attempt in range(_TRIES):
        run = uuid.uuid4().hex
        flow = Dataflow(
            compiled=version.compiled,
            store=store,
            targets=version.targets,
            run=run,
            epoch=epoch,
            state=state,
            grouped=version.preaggregation.grouped,
            send=box.send,
            schemas=version.schemas,
            careful=version.careful,
            trial=version.trial,
            places=places,
            fetch_all=version.settings.fetch_policy is FetchPolicy.ALL_AT_ONCE,
            watched=version.watched,
        )
        flow.execute(batch)
        version.observed = flow.observed
        try:
            return box.drain(run, partitions)
        except UnclearReportsError as unclear:
            # A keyed step ran twice (lost shuffle files, a self-join) or not to its end (a limit above it).
            # From now on its output is kept before anybody reads it.
            version.careful = True
            if attempt == _TRIES - 1:
                raise unclear.reason from unclear
    raise AssertionError("unreachable")


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
    return StepState(step.ranges, tables, heat)


def written_bytes(reports: Mapping[str, list[TaskReport]]) -> int:
    """Bytes of state that tasks have written."""
    return sum(
        write.segment.bytes
        for of_step in reports.values()
        for report in of_step
        for write in report.tables.values()
        if write.segment
    )


def _step_metrics(reports: list[TaskReport]) -> dict[str, float]:
    return {
        "rows": sum(r.rows for r in reports),
        "arrived": sum(r.arrived for r in reports),
        "keys": sum(r.groups for r in reports),
        "output_rows": sum(r.output_rows for r in reports),
        "slowest_ms": round(max(r.milliseconds for r in reports), 1),
    }


def _first_readers(compiled: Compiled) -> Iterator[str]:
    """Keyed steps and sinks with no keyed step above them: what enters them is what entered the pipeline."""
    below_keyed: set[str] = set()
    for step in compiled.pipeline.steps:
        if any(i.id in below_keyed or isinstance(i, KeyedStep) for i in step.inputs):
            below_keyed.add(step.id)
        elif isinstance(step, KeyedStep | SinkStep):
            yield step.id
