"""From what was handed in to the pipeline that is wanted: the program, the changes live in it, and the way there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream.changes.change import Change, Replace, drained_by, single_changes
from midstream.changes.edit import changed
from midstream.changes.settings import Settings
from midstream.coordinator.machine import Coordinator
from midstream.engine.changelog import ChangeLog, Submission
from midstream.engine.code import pack
from midstream.engine.compile import Compiled
from midstream.engine.examine import Wish
from midstream.engine.feed import Feed
from midstream.engine.portable import portable
from midstream.engine.pulse import Pulse
from midstream.engine.sources import load_source, rows_per_file
from midstream.engine.version import Version
from midstream.errors import ChangeError, MidstreamError
from midstream.graph.pipeline import Pipeline
from midstream.graph.steps import SourceStep
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, StepState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_TIME_LIMIT = 60.0


@dataclass(frozen=True)
class Program:
    """The pipeline as the user's program has it, before any change."""

    pipeline: Pipeline
    sources: Mapping[SourceStep, DataFrame]
    compiled: Compiled
    trigger: Mapping[str, Any]


@dataclass(frozen=True)
class Latest:
    """How far the stream is: its last commit, and the rows of that epoch when this driver ran it."""

    manifest: Manifest
    batch: DataFrame | None

    @property
    def session(self) -> SparkSession | None:
        """That of the query, whose settings epochs run with."""
        return self.batch.sparkSession if self.batch is not None else None


class Wishes:
    """Makes wishes of submissions. Sources are loaded once and shared by all versions that read them."""

    def __init__(
        self, program: Program, log: ChangeLog, ledger: Ledger, spark: SparkSession, retain: int, pulse: Pulse
    ) -> None:
        self._program = program
        self._log = log
        self._ledger = ledger
        self._spark = spark
        self._retain = retain
        self._pulse = pulse
        self._loaded: dict[SourceStep, DataFrame] = dict(program.sources)

    def feed(self, pipeline: Pipeline, settings: Settings, folder: str) -> Feed:
        pulse = self._pulse.frame() if pipeline.needs_pulse else None
        return Feed(self.frames(pipeline, settings), self._trigger(settings), folder, pulse)

    def frames(self, pipeline: Pipeline, settings: Settings) -> dict[str, DataFrame]:
        """The streaming DataFrames of all sources, each loaded once, unless it must read with a cap."""
        if settings.rows_per_epoch is not None:
            return {source.id: load_source(source, self._spark, settings) for source in pipeline.sources}
        for source in pipeline.sources:
            if source not in self._loaded:
                self._loaded[source] = load_source(source, self._spark)
        return {source.id: self._loaded[source] for source in pipeline.sources}

    def settings(self, live: Sequence[int]) -> Settings:
        settings = Settings()
        for id_ in live:
            change = self._log.submission(id_).change
            settings = settings.after(change) if change is not None else settings
        return settings

    def _trigger(self, settings: Settings) -> Mapping[str, Any]:
        if settings.trigger_seconds is None:
            return self._program.trigger
        return {"processingTime": f"{round(settings.trigger_seconds * 1000)} milliseconds"}

    def of(self, id_: int, submission: Submission, machine: Coordinator, current: Version, latest: Manifest) -> Wish:
        """What a submission wants, given the pipeline as it is when its turn comes."""
        limit = submission.time_limit or DEFAULT_TIME_LIMIT
        if submission.change is not None:
            return self.forward(submission.change, current, limit)
        assert submission.undoes is not None
        undone = self._log.submission(submission.undoes)
        pipeline = self.pipeline(machine.live_after(id_))
        replaced = [c for c in single_changes(undone.change) if isinstance(c, Replace)] if undone.change else []
        renames = {c.step: {new: old for old, new in c.rename.items()} for c in replaced if c.rename}
        applied = machine.modifications[submission.undoes].epoch
        restored = self._state_before(applied, pipeline, latest) if applied is not None else {}
        return Wish(
            text=f"undo {undone.text}",
            pipeline=pipeline,
            renames=renames,
            restored=restored,
            back=True,
            settings=(settings := self.settings(machine.live_after(id_))),
            hand_over=_needs_hand_over(current, pipeline, settings),
            time_limit=limit,
        )

    def forward(self, change: Change, current: Version, limit: float = DEFAULT_TIME_LIMIT) -> Wish:
        """What a change wants."""
        replaced = [c for c in single_changes(change) if isinstance(c, Replace)]
        pipeline = changed(current.compiled.pipeline, change)
        settings = current.settings.after(change)
        if settings.trigger_seconds is not None and current.feed.ends_by_itself:
            raise ChangeError.ends_by_itself()
        return Wish(
            text=str(change),
            pipeline=pipeline,
            settings=settings,
            hand_over=_needs_hand_over(current, pipeline, settings),
            renames={c.step: c.rename for c in replaced if c.rename},
            codes={c.step: pack(c.convert) for c in replaced if c.convert is not None},
            drains=drained_by(change),
            time_limit=limit,
        )

    def pipeline(self, live: Sequence[int]) -> Pipeline:
        """The program with changes on top."""
        pipeline = self._program.pipeline
        for id_ in live:
            submission = self._log.submission(id_)
            assert submission.change is not None
            try:
                pipeline = changed(pipeline, submission.change)
            except MidstreamError as cause:
                raise ChangeError.live_change_does_not_fit(id_, submission.text, cause) from cause
        return pipeline

    def _state_before(self, epoch: int, pipeline: Pipeline, last: Manifest) -> dict[str, StepState]:
        """State of steps that were taken out by a change, as it was then, unless its files are about to go."""
        if epoch - 1 < last.epoch - self._retain // 2 or epoch - 1 not in self._ledger.epochs():
            return {}
        then = self._ledger.read(epoch - 1).steps
        return {s.id: then[s.id] for s in pipeline.keyed if s.id in then and s.id not in last.steps}

    def complete(self, change: Change, current: Version, batch: DataFrame | None) -> Change:
        """A change with all it needs to be carried out again by any later driver."""
        sources = [source.id for source in current.compiled.pipeline.sources]
        return portable(change, self._spark, lambda: rows_per_file(batch, sources) if batch is not None else {})


def _needs_hand_over(current: Version, pipeline: Pipeline, settings: Settings) -> bool:
    """Whether Spark needs a new query for it: a query reads the sources it was started with, as told then."""
    running = current.compiled.pipeline
    same = set(pipeline.sources) == set(running.sources) and pipeline.needs_pulse == running.needs_pulse
    return not same or not settings.feeds_alike(current.settings)
