"""One epoch as Spark DataFrames: stateless steps are left to Catalyst, keyed steps become state tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from midstream.changes.change import Guard
from midstream.engine.compile import Compiled, CompiledKeyed, apply_stateless
from midstream.engine.failure import step_error
from midstream.engine.guards import Observation, observe
from midstream.engine.internals import Maximum, before_exchange, empty_frame, map_in_arrow, run_job
from midstream.engine.loops import Returned
from midstream.engine.placer import ANYWHERE, Places
from midstream.engine.sources import split_batch
from midstream.errors import MidstreamError
from midstream.graph.steps import AggregateStep, KeyedStep, LateStep, LoopStep, OutputMode, SinkStep, SourceStep, Step
from midstream.schemas import NOTHING, quoted, to_arrow
from midstream.state.hashspace import partition_sql
from midstream.state.manifest import StepState
from midstream.state.store import Store
from midstream.state.tables import Times
from midstream.task.keyed import HASH_COLUMN, ROWS_COLUMN, KeyedTask
from midstream.task.report import Told
from midstream.task.staging import StageTarget, StageTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class InputSchemas:
    """Arrow schemas of what reaches the state tasks, asked of Spark once: they are the same in every epoch."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], pa.Schema] = {}

    def of(self, step: str, grouped: bool, rows: DataFrame) -> pa.Schema:
        known = self._known.get((step, grouped))
        if known is None:
            known = self._known[step, grouped] = to_arrow(rows.schema)
        return known


@dataclass
class Dataflow:
    """The DataFrames of one try of one epoch. `careful` keeps every keyed step's output so that it runs only once."""

    compiled: Compiled
    store: Store
    targets: Mapping[str, StageTarget]
    run: str
    epoch: int
    state: Mapping[str, StepState]
    grouped: Mapping[str, bool]
    send: Callable[[Told], None]
    schemas: InputSchemas
    careful: bool
    trial: bool = False
    places: Places = ANYWHERE
    fetch_all: bool = False
    watched: Mapping[str, Guard] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)
    loops: Mapping[str, Returned] = field(default_factory=dict)
    only: Set[str] | None = None
    """Steps to run without rows of sources: those that have something due, and what is behind them."""
    latest: dict[str, int | None] = field(default_factory=dict)
    """The latest event time each source has given."""
    observed: dict[str, Observation] = field(default_factory=dict)
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _ends: list[DataFrame] = field(default_factory=list)
    _kept: list[DataFrame] = field(default_factory=list)
    _maxima: dict[str, Maximum] = field(default_factory=dict)

    def execute(self, batch: DataFrame) -> None:
        """Run the epoch: reports arrive through `send`, files lie staged."""
        try:
            self._build(batch)
            if self._ends:
                run_job(reduce(lambda a, b: a.union(b), self._ends))
            for id_, guard in self.watched.items():
                if id_ in self._frames and guard.reads_output:
                    self.observed[id_] = observe(self._frames[id_], guard)
            self.latest.update({id_: maximum.read() for id_, maximum in self._maxima.items()})
        finally:
            for frame in self._kept:
                frame.unpersist()

    def _build(self, batch: DataFrame) -> None:
        spark = batch.sparkSession
        if self.only is None:
            self._read(batch)
        else:
            self._read_nothing(spark)
        for step in self.compiled.pipeline.steps:
            if self.only is not None and step.id not in self.only:
                continue
            if isinstance(step, SinkStep):
                self._end_in(step)
                continue
            if isinstance(step, KeyedStep):
                frame = self._keyed(self.compiled.keyed[step.id])
            elif isinstance(step, SourceStep | LoopStep):
                frame = self._frames[step.id]
            else:
                frame = self._stateless(step, spark)
            self._frames[step.id] = self._shared(step, frame)

    def _read(self, batch: DataFrame) -> None:
        """The rows of the epoch by source; of one with event time, the latest is noted as they go by."""
        sources = self.compiled.pipeline.sources
        if len(sources) > 1:
            batch = self._keep(batch)
        self._frames.update(split_batch(batch, {source.id: None for source in sources}))
        for source in sources:
            if source.watermark is not None:
                maximum = Maximum(self._frames[source.id], source.watermark.column)
                self._maxima[source.id], self._frames[source.id] = maximum, maximum.frame
        for step in self.compiled.pipeline.steps:
            if isinstance(step, LoopStep):
                schema, spark = self.compiled.schemas[step.id], batch.sparkSession
                looped = self.loops.get(step.id)
                self._frames[step.id] = looped.frame(spark, schema) if looped else empty_frame(spark, schema)

    def _read_nothing(self, spark: SparkSession) -> None:
        """Stand-ins without rows for what the steps of this round read from others."""
        assert self.only is not None
        for step in self.compiled.pipeline.steps:
            for source in step.inputs if step.id in self.only else ():
                if source.id not in self.only and source.id not in self._frames:
                    self._frames[source.id] = empty_frame(spark, self.compiled.schemas[source.id])

    def _stateless(self, step: Step, spark: SparkSession) -> DataFrame:
        try:
            if isinstance(step, LateStep):
                return self._late(step)
            return apply_stateless(step, [self._frames[source.id] for source in step.inputs], spark)
        except MidstreamError:
            raise
        except Exception as cause:
            raise step_error(step, cause) from cause

    def _late(self, step: LateStep) -> DataFrame:
        windows, windowing = self.compiled.keyed[step.of.id].windows, step.of.windowing
        assert windows is not None
        assert windowing is not None
        before = self.times[step.of.id].before
        return windows.late(self._frames[step.of.input.id], windowing.lateness, before)

    def _readers(self, step: Step) -> list[Step]:
        """The steps that read what a step gives, as rows of a DataFrame."""
        consumers = self.compiled.pipeline.consumers[step.id]
        return [c for c in consumers if not self._is_fused(step, c) and not (isinstance(c, LateStep) and c.of is step)]

    def _shared(self, step: Step, frame: DataFrame) -> DataFrame:
        """A step several others read is computed once: a keyed one at once, so that its state task runs only once."""
        readers = self._readers(step)
        if self._is_watched(step):
            frame = self._keep(frame)
            if isinstance(step, KeyedStep):
                frame.count()
            return frame
        if isinstance(step, KeyedStep) and not readers:
            if self._runs_alone(step):
                frame.collect()
            else:
                self._ends.append(frame)
            return frame
        many = len(readers) > 1
        if isinstance(step, KeyedStep) and (many or self.careful or self._runs_alone(step)):
            frame = self._keep(frame)
            frame.count()
            return frame
        return self._keep(frame) if many else frame

    def _runs_alone(self, step: KeyedStep) -> bool:
        """Whether its tasks have work without rows. They must be a job of their own then: without rows, the number of
        a task is all that tells which partition it is."""
        return _is_complete(step) or self._fires(step)

    def _fires(self, step: KeyedStep) -> bool:
        return step.id in self.times and self.times[step.id].firing

    def _is_watched(self, step: Step) -> bool:
        return step.id in self.watched and self.watched[step.id].reads_output

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def _is_fused(self, step: Step, consumer: Step) -> bool:
        """A sink that reads a keyed step directly is staged by the state task itself."""
        return isinstance(step, KeyedStep) and isinstance(consumer, SinkStep)

    def _end_in(self, sink: SinkStep) -> None:
        if not self._is_fused(sink.input, sink):
            task = StageTask(self.run, self.epoch, self.targets[sink.id], self.send)
            self._ends.append(map_in_arrow(self._frames[sink.input.id], task, NOTHING))

    def _keyed(self, keyed: CompiledKeyed) -> DataFrame:
        step, state = keyed.step, self.state[keyed.step.id]
        fused = [c for c in self.compiled.pipeline.consumers[step.id] if self._is_fused(step, c)]
        emits = bool(self._readers(step)) or self._is_watched(step)
        rows = self._exchanged(keyed, self._input_of(keyed), state)
        task = KeyedTask(
            run=self.run,
            step=step.id,
            epoch=self.epoch,
            store=self.store,
            function=keyed.function,
            input=self.schemas.of(step.id, self.grouped.get(step.id, False), rows),
            keys=keyed.keys,
            ranges=state.ranges,
            tables=state.tables,
            stage=tuple(self.targets[sink.id] for sink in fused),
            emit=emits,
            complete=_is_complete(step),
            send=self.send,
            fetch_all=self.fetch_all,
            trial=self.trial,
            times=self.times.get(step.id),
        )
        if emits:
            return map_in_arrow(rows, task, keyed.output, reads=task.input.names)
        return map_in_arrow(rows, task, NOTHING)

    def _input_of(self, keyed: CompiledKeyed) -> DataFrame:
        """The rows of a keyed step, with what its key needs."""
        frames = [self._frames[above.id] for above in keyed.step.inputs]
        if keyed.join is not None:
            return keyed.join.union.apply(*frames)
        if keyed.required is not None:
            return frames[0].where(F.col(quoted(keyed.required)).isNotNull())
        if keyed.windows is None:
            return frames[0]
        return keyed.windows.apply(frames[0], self.times[keyed.step.id].now)

    def _exchanged(self, keyed: CompiledKeyed, frame: DataFrame, state: StepState) -> DataFrame:
        """Rows hashed and brought to the partition that owns their range, aggregated before when that pays."""
        keys = [quoted(key) for key in keyed.keys]
        plan, columns = keyed.aggregates, ["*"]
        if plan is not None and self.grouped.get(keyed.step.id, False):
            # A count the user asked for serves as ours, which Catalyst would else compute twice for every row.
            counts = [sql.partition(" AS ")[2] for sql in plan.grouped_sql if sql.startswith("count(1) AS ")]
            counted = counts[0] if counts else None
            partials = [*plan.grouped_sql, *([] if counted else [f"count(1) AS {ROWS_COLUMN}"])]
            frame = before_exchange(frame.groupBy(*keys).agg(*(F.expr(sql) for sql in partials)))
            columns = ["*", f"{counted} AS {ROWS_COLUMN}"] if counted else ["*"]
        elif plan is not None:
            columns = [*(quoted(name) for name in keyed.shipped_keys), *plan.per_row_sql]
        # One projection, one exchange: every DataFrame operation costs a round trip to the JVM and an analysis.
        hashed = frame.selectExpr(*columns, f"xxhash64({', '.join(keys)}) AS {HASH_COLUMN}")
        if self.trial and len(state.ranges) == 1:
            return hashed.coalesce(1)  # one task for all of it, which waits but once for its turn
        exchanged = hashed.repartitionById(len(state.ranges), F.expr(partition_sql(HASH_COLUMN, state.ranges)))
        return self.places.apply(keyed.step.id, exchanged)


def _is_complete(step: Step) -> bool:
    """Whether a keyed step gives its whole result each epoch."""
    return isinstance(step, AggregateStep) and step.output_mode is OutputMode.COMPLETE
