"""One version of the pipeline, with everything epochs need to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from midstream.changes.change import Guard
from midstream.changes.settings import Settings
from midstream.engine.compile import Compiled
from midstream.engine.feed import Feed
from midstream.engine.guards import Observation
from midstream.engine.preaggregation import PreAggregation
from midstream.engine.reused import Reused
from midstream.errors import ChangeError, SinkError
from midstream.schemas import to_arrow
from midstream.sinks.base import Sink, SinkContext
from midstream.state.compaction import CompactionPolicy
from midstream.state.conversion import Conversion
from midstream.state.hashspace import HashRange, even_ranges
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, StepState, TableState
from midstream.task.staging import StageTarget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TableName: TypeAlias = tuple[str, str]
"""A table of state: the step that keeps it, and its name there."""

Fork: TypeAlias = Callable[[int], Mapping[str, StepState] | None]
"""State that has been built beside the stream, up to an epoch; None when it is not there."""


@dataclass
class Version:
    """A compiled pipeline under the number it has in the plan log.

    `conversions` say how state that the version before has left becomes this one's; `restored` is state that steps get
    back which the version before does not have. What is learnt while epochs run (schemas, reductions) stays with it.
    """

    number: int
    compiled: Compiled
    feed: Feed
    targets: Mapping[str, StageTarget]
    contexts: Mapping[str, SinkContext]
    conversions: Mapping[TableName, Conversion] = field(default_factory=dict)
    restored: Mapping[str, StepState] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    fork: Fork | None = None
    may_lose: bool = False
    careful: bool = False
    trial: bool = False
    """Whether it is only tried on a few rows: an exchange would cost more than it brings, and failures are told."""
    draining: frozenset[str] = frozenset()
    """Steps whose open windows are to give what they have in the epoch that is about to run."""
    watched: Mapping[str, Guard] = field(default_factory=dict)
    """Guards on steps, for the epoch that is about to run."""
    observed: Mapping[str, Observation] = field(default_factory=dict)
    """What those guards saw of the last epoch."""
    reused: Reused = field(default_factory=Reused)
    preaggregation: PreAggregation = field(init=False)

    def __post_init__(self) -> None:
        self.preaggregation = PreAggregation(self.compiled)

    @property
    def policies(self) -> dict[str, CompactionPolicy]:
        return {id_: keyed.step.compaction for id_, keyed in self.compiled.keyed.items()}

    def ranges(self, step: str) -> tuple[HashRange, ...]:
        keyed = self.compiled.keyed[step]
        return keyed.step.ranges or even_ranges(keyed.parallelism)

    def state_after(self, last: Manifest) -> dict[str, StepState]:
        """State as an epoch of this version finds it, with empty tables where there is none yet. Nothing is moved or
        rewritten: ranges are new cuts through the same segments, and rows are converted when they are read."""
        if self.fork is not None and last.plan != self.number:
            forked = self.fork(last.epoch)
            if forked is None:
                raise ChangeError.shadow_ended(f"it has not seen epoch {last.epoch}")
            return dict(forked)
        steps: dict[str, StepState] = {}
        for id_, keyed in self.compiled.keyed.items():
            known = last.steps.get(id_) or self.restored.get(id_)
            tables: dict[str, TableState] = {}
            for spec in keyed.function.tables:
                table = known.tables.get(spec.name) if known else None
                # Its first epoch converts what the version before has left; later ones find it converted.
                conversion = self.conversions.get((id_, spec.name)) if last.plan != self.number else None
                if table is not None and conversion is not None:
                    table = replace(table, spec=spec, conversions=(*table.conversions, conversion))
                elif table is not None and table.spec.schema != spec.schema:
                    if table.rows and not self.may_lose:
                        # It was empty when the change was checked, and has got rows since.
                        raise ChangeError.state_lost([f"the table '{spec.name}' of '{id_}' has another schema"])
                    table = None
                tables[spec.name] = table or TableState(spec)
            kept = known or StepState((), {})
            first = next(iter(tables.values()), None)
            splits = kept.splits if first is not None and first.rows else ()
            if splits and keyed.indivisible is not None:
                raise ChangeError.indivisible(id_, keyed.indivisible)
            steps[id_] = replace(kept, ranges=self.ranges(id_), tables=tables, splits=splits)
        return steps


def make_version(
    number: int,
    compiled: Compiled,
    feed: Feed,
    ledger: Ledger,
    spark: SparkSession,
    *,
    before: Version | None = None,
    conversions: Mapping[TableName, Conversion] | None = None,
    restored: Mapping[str, StepState] | None = None,
    settings: Settings | None = None,
    fork: Fork | None = None,
    may_lose: bool = False,
) -> Version:
    """Everything a version needs, its sinks prepared; those that are the same as before stay as they are."""
    last = ledger.last().epoch
    contexts: dict[str, SinkContext] = {}
    targets: dict[str, StageTarget] = {}
    for id_, sink in compiled.sinks.items():
        staging = sink.step.sink.staging(ledger.store, ledger.checkpoint_id, id_)
        schema = to_arrow(sink.schema)
        context = SinkContext(id_, ledger.checkpoint_id, schema, sink.keys, sink.complete, staging, spark, last)
        if before is None or not _is_as_before(before, id_, sink.step.sink, context):
            _prepare(sink.step.sink, context, ledger)
        contexts[id_] = context
        targets[id_] = StageTarget(id_, staging, schema, sink.step.sink.stage_options)
    version = Version(
        number=number,
        compiled=compiled,
        feed=feed,
        targets=targets,
        contexts=contexts,
        conversions=conversions or {},
        restored=restored or {},
        settings=settings or Settings(),
        fork=fork,
        may_lose=may_lose,
    )
    if before is not None:
        version.preaggregation.take_over(before.preaggregation)
        version.reused.shipped.update(before.reused.shipped)
    return version


def _is_as_before(before: Version, id_: str, sink: Sink, context: SinkContext) -> bool:
    known = before.compiled.sinks.get(id_)
    if known is None or known.step.sink is not sink:
        return False
    return replace(before.contexts[id_], last_epoch=context.last_epoch, staging=context.staging) == context


def _prepare(sink: Sink, context: SinkContext, ledger: Ledger) -> None:
    try:
        sink.prepare(context)
    except SinkError as error:
        # The driver we take over from may just have committed one more epoch.
        now = ledger.last().epoch
        if error.error_class != "SINK_AHEAD_OF_CHECKPOINT" or now == context.last_epoch:
            raise
        sink.prepare(replace(context, last_epoch=now))
