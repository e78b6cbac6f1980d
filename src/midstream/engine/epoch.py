"""Running epochs: read state N-1, run the DataFrames, commit manifest N, finalise the sinks.

The manifest is the one commit point. Before it nothing is real; after it everything is, and what remains to be done
(making staged files visible) is finished by whoever comes next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Protocol

from midstream.engine.compile import Compiled
from midstream.engine.epochs import EpochReport, StepReport
from midstream.engine.execute import Executed, execute, written_bytes
from midstream.engine.faults import reach
from midstream.engine.internals import ARROW_BATCH_CONF, ARROW_BATCH_ROWS
from midstream.engine.loops import returned
from midstream.engine.placer import Placer
from midstream.engine.pulse import Pulse
from midstream.engine.reports import ReportBox
from midstream.engine.sparklog import SparkLog
from midstream.engine.version import Version
from midstream.errors import CheckpointError
from midstream.graph.steps import KeyedStep, SinkStep
from midstream.sinks.base import SinkContext, StagedEpoch
from midstream.state.compaction import CompactionResult
from midstream.state.compactor import Compactor
from midstream.state.ledger import Ledger, now
from midstream.state.manifest import Manifest, StagedFile, StepState
from midstream.state.precedence import meeting_point, working
from midstream.state.segment import SegmentInfo
from midstream.task.ahead import Ahead
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
    pulse: Pulse
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
        self.pulse.want(self.versions.current.compiled, self.last)

    def run(self, batch: DataFrame, epoch: int) -> None:
        """The `foreachBatch` callback."""
        if epoch == self.last.epoch:
            # The driver died between the manifest and Spark's own commit: the epoch is real, only finish it.
            self.log.require_offsets(self.last)
            self.finalise(self.last, self.versions.current)
            return
        if epoch != self.last.epoch + 1:
            raise CheckpointError.epoch_gap(epoch, self.last.epoch)
        with working(meeting_point(self.ledger.store)):
            self._run_and_commit(batch, epoch)

    def _run_and_commit(self, batch: DataFrame, epoch: int) -> None:
        started, clock = datetime.now(UTC), time.perf_counter()
        self._phases = {}
        with self._phase("run"):
            version, before, done = self._run(batch, epoch)
        reports = done.reports
        reach("executed")
        if self.shadow is not None:
            with self._phase("shadow"):
                self.shadow.run(batch, epoch, self.last, version, reports, self._phases["run"])
        with self._phase("commit"):
            manifest = self._manifest(version, epoch, before, done)
            manifest_bytes = self.ledger.commit(manifest)
        reach("committed")
        self.versions.committed(manifest)
        with self._phase("finalise"):
            self.finalise(manifest, version)
        reach("finalised")
        self.last, self.batch = manifest, batch
        self.pulse.want(version.compiled, manifest)
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

    def _run(self, batch: DataFrame, epoch: int) -> tuple[Version, dict[str, StepState], Executed]:
        """Run the rows through the version whose turn it is, and through the one before it when that fails."""
        # Asked before the boundary: what is merged is not in the way of instances that move at it.
        merged = self.compactor.announce()
        version = self.versions.boundary(epoch)
        while True:
            try:
                before = version.state_after(self.last)
                self._tune(version, batch)
                places = self.placer.places(before, version.settings.rules)
                store, times = self.ledger.store, self.last.times
                loops = returned(version, self.last)
                ahead = _ahead(merged, before, version)
                done = execute(version, store, self.box, batch, epoch, before, times, places, loops, ahead)
                return version, before, done
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
        done: Executed,
    ) -> Manifest:
        steps, reports = done.after(self.compactor.apply(before)), done.reports
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
            times=done.times,
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
                slowest_ms=max(_by_instance(of_step)),
                median_ms=median(_by_instance(of_step)),
                state_rows=state.rows if state else 0,
                state_bytes=state.bytes if state else 0,
                fetched_bytes=sum(r.fetched_bytes for r in of_step),
                late_rows=sum(r.late for r in of_step),
                watermark=_instant(state.watermark) if state else None,
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


def _ahead(merged: list[CompactionResult], state: Mapping[str, StepState], version: Version) -> dict[str, Ahead]:
    """By step, the files of merges that a commit is about to name. All instances share the bytes a second."""
    instances = sum(len(step.ranges) for step in state.values())
    cap = version.settings.fetch_bytes_per_second
    files: dict[str, dict[str, tuple[SegmentInfo, ...]]] = {}
    for result in merged:
        of_step = files.setdefault(result.step, {})
        of_step[result.table] = (*of_step.get(result.table, ()), *result.outputs)
    return {step: Ahead(of_step, cap / instances if cap else None) for step, of_step in files.items()}


def _instant(microseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds) if microseconds is not None else None


def _by_instance(reports: list[TaskReport]) -> list[float]:
    """The time each instance has worked, in however many rounds."""
    each: dict[int, float] = {}
    for report in reports:
        each[report.partition] = each.get(report.partition, 0.0) + report.milliseconds
    return list(each.values())


def _step_metrics(reports: list[TaskReport]) -> dict[str, float]:
    return {
        "rows": sum(r.rows for r in reports),
        "arrived": sum(r.arrived for r in reports),
        "keys": sum(r.groups for r in reports),
        "output_rows": sum(r.output_rows for r in reports),
        "late_rows": sum(r.late for r in reports),
        "slowest_ms": round(max(_by_instance(reports)), 1),
    }


def _first_readers(compiled: Compiled) -> Iterator[str]:
    """Keyed steps and sinks with no keyed step above them: what enters them is what entered the pipeline."""
    below_keyed: set[str] = set()
    for step in compiled.pipeline.steps:
        if any(i.id in below_keyed or isinstance(i, KeyedStep) for i in step.inputs):
            below_keyed.add(step.id)
        elif isinstance(step, KeyedStep | SinkStep):
            yield step.id
