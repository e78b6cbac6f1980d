"""One epoch as Spark DataFrames: stateless steps are left to Catalyst, keyed steps become state tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from midstream.aggregates.function import AggregateFunction
from midstream.aggregates.parts import Joined, Parted
from midstream.changes.change import Guard
from midstream.engine.compile import Compiled, CompiledKeyed, apply_stateless
from midstream.engine.exchange import exchanged
from midstream.engine.failure import step_error
from midstream.engine.guards import Observation, observe
from midstream.engine.internals import Latest, empty_frame, latest, map_in_arrow, run_job
from midstream.engine.loops import Returned
from midstream.engine.partials import grouped, paned, spanned
from midstream.engine.placer import ANYWHERE, Places
from midstream.engine.reused import Reused, asleep
from midstream.engine.sources import column_of_source, split_batch
from midstream.errors import MidstreamError
from midstream.graph.steps import AggregateStep, KeyedStep, LateStep, LoopStep, OutputMode, SinkStep, SourceStep, Step
from midstream.schemas import NOTHING, quoted
from midstream.state.manifest import StepState
from midstream.state.reader import Fetch
from midstream.state.splits import Split, split_sql
from midstream.state.store import Store
from midstream.state.tables import JoiningFunction, KeyedFunction, TimedFunction, Times
from midstream.task.ahead import Ahead
from midstream.task.keyed import HASH_COLUMN, KeyedTask
from midstream.task.report import Told
from midstream.task.staging import StageTarget, StageTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    reused: Reused
    careful: bool
    trial: bool = False
    places: Places = ANYWHERE
    fetch: Fetch = Fetch.NOTHING
    ahead: Mapping[str, Ahead] = field(default_factory=dict)
    watched: Mapping[str, Guard] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)
    loops: Mapping[str, Returned] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)
    """What steps have to do in this round that have keys in parts, and no rows."""
    only: Set[str] | None = None
    """Steps to run without rows of sources: those that have something due, and what is behind them."""
    latest: dict[str, int | None] = field(default_factory=dict)
    """The latest event time each source has given."""
    observed: dict[str, Observation] = field(default_factory=dict)
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _ends: list[DataFrame] = field(default_factory=list)
    _kept: list[DataFrame] = field(default_factory=list)
    _maxima: Latest | None = None
    _spark: SparkSession = field(init=False)

    def execute(self, batch: DataFrame) -> None:
        """Run the epoch: reports arrive through `send`, files lie staged."""
        try:
            self._build(batch)
            if self._ends:
                run_job(reduce(lambda a, b: a.union(b), self._ends))
            for id_, guard in self.watched.items():
                if id_ in self._frames and guard.reads_output:
                    self.observed[id_] = observe(self._frames[id_], guard)
            if self._maxima is not None:
                self.latest.update(self._maxima.read())
        finally:
            for frame in self._kept:
                frame.unpersist()

    def _build(self, batch: DataFrame) -> None:
        spark = self._spark = batch.sparkSession
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
        """The rows of the epoch by source; of those with event time, the latest is noted as they go by."""
        sources = self.compiled.pipeline.sources
        times = {
            source.id: (
                column_of_source(len(sources), number, source.watermark.column),
                self.compiled.schemas[source.id][source.watermark.column].dataType,
            )
            for number, source in enumerate(sources)
            if source.watermark is not None
        }
        if times:
            self._maxima = latest(batch, times)
            batch = self._maxima.frame
        if len(sources) > 1:
            batch = self._keep(batch)
        self._frames.update(split_batch(batch, {source.id: None for source in sources}))
        for step in self.compiled.pipeline.steps:
            if isinstance(step, LoopStep):
                schema, spark = self.compiled.schemas[step.id], batch.sparkSession
                looped = self.loops.get(step.id)
                self._frames[step.id] = looped.frame(spark, schema) if looped else empty_frame(spark, schema)

    def _read_nothing(self, spark: SparkSession) -> None:
        """Stand-ins without rows for what the steps of this round read from others."""
        assert self.only is not None
        for step in self.compiled.pipeline.steps:
            if isinstance(step, KeyedStep) and self._fires(step) and not self._has_rows(step):
                continue  # it is only woken
            for source in step.inputs if step.id in self.only else ():
                if source.id not in self.only and source.id not in self._frames:
                    self._frames[source.id] = self.reused.nothing(source.id, spark, self.compiled.schemas[source.id])

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
        """Whether its tasks have work without rows and nobody wakes them. They must be a job of their own then: without
        rows, the number of a task is all that tells which partition it is."""
        return _is_complete(step)

    def _fires(self, step: KeyedStep) -> bool:
        """Whether it has work without rows, and every partition of it is woken."""
        return step.id in self.joined or (step.id in self.times and self.times[step.id].firing)

    def _has_rows(self, step: KeyedStep) -> bool:
        """Whether a step may get rows in this round."""
        return self.only is None or any(above.id in self.only for above in step.inputs)

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
        woken, is_grouped = self._fires(step), self.grouped.get(step.id, False)
        rows = self._woken(keyed, state) if woken else self._exchanged(keyed, self._hashed(keyed), state)
        task = KeyedTask(
            run=self.run,
            step=step.id,
            epoch=self.epoch,
            store=self.store,
            function=self._function(keyed, state),
            input=self.reused.input(step.id, is_grouped, woken, rows),
            keys=keyed.keys,
            ranges=state.ranges,
            tables=state.tables,
            stage=tuple(self.targets[sink.id] for sink in fused),
            emit=emits,
            complete=_is_complete(step),
            send=self.send,
            fetch=self.fetch,
            trial=self.trial,
            times=self.times.get(step.id),
            woken=woken,
            ahead=self.ahead.get(step.id),
        )
        if emits:
            return map_in_arrow(rows, task, keyed.output, reads=task.input.names)
        return map_in_arrow(rows, task, NOTHING)

    def _function(self, keyed: CompiledKeyed, state: StepState) -> KeyedFunction | TimedFunction | JoiningFunction:
        if keyed.step.id in self.joined:
            return self.joined[keyed.step.id]
        if self._splits(state) and isinstance(keyed.function, AggregateFunction):
            return Parted(keyed.function, state.splits)
        return keyed.function

    def _splits(self, state: StepState) -> tuple[Split, ...]:
        """The keys whose rows go to several partitions. A trial is content with one round, in which all keys give
        results."""
        return () if self.trial else state.splits

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

    def _woken(self, keyed: CompiledKeyed, state: StepState) -> DataFrame:
        """The rows of a step that has work without rows too: every partition gets one that wakes it."""
        id_, spark, rows = keyed.step.id, self._spark, None
        if self._has_rows(keyed.step):
            rows = asleep(self._hashed(keyed))

        def like() -> DataFrame:
            if rows is not None:
                return rows
            for above in keyed.step.inputs:
                nothing = self.reused.nothing(above.id, spark, self.compiled.schemas[above.id])
                self._frames.setdefault(above.id, nothing)
            return asleep(self._hashed(keyed))

        wakes = self.reused.wakes(id_, self.grouped.get(id_, False), spark, state.ranges, like)
        if rows is None:
            return self.places.apply(id_, wakes)
        return self._exchanged(keyed, rows.unionByName(wakes), state)

    def _hashed(self, keyed: CompiledKeyed) -> DataFrame:
        """The rows of a step with the hash of their keys, aggregated before the exchange when that pays."""
        keys = [quoted(key) for key in keyed.keys]
        plan, windows, columns = keyed.aggregates, keyed.windows, ["*"]
        is_grouped = self.grouped.get(keyed.step.id, False)
        if plan is not None and is_grouped and windows is not None and windows.has_panes:
            frame, columns = paned(self._frames[keyed.step.input.id], keyed.step.keys, windows, plan)
        elif plan is not None and plan.span is not None:
            frame, columns = spanned(self._input_of(keyed), keyed.keys, plan)
        elif plan is not None and is_grouped:
            frame, columns = grouped(self._input_of(keyed), keyed.keys, plan)
        else:
            frame = self._input_of(keyed)
            if plan is not None:
                columns = [*(quoted(name) for name in keyed.shipped_keys), *plan.per_row_sql]
        # One projection, one exchange: every DataFrame operation costs a round trip to the JVM and an analysis.
        splits, part = self._splits(self.state[keyed.step.id]), plan.part_sql if plan is not None else None
        hashed = split_sql(f"xxhash64({', '.join(keys)})", splits, str(part))
        return frame.selectExpr(*columns, f"{hashed} AS {HASH_COLUMN}")

    def _exchanged(self, keyed: CompiledKeyed, hashed: DataFrame, state: StepState) -> DataFrame:
        """Rows brought to the partition that owns the range of their hash."""
        if self.trial and len(state.ranges) == 1:
            return hashed.coalesce(1)  # one task for all of it, which waits but once for its turn
        return self.places.apply(keyed.step.id, exchanged(hashed, state.ranges))


def _is_complete(step: Step) -> bool:
    """Whether a keyed step gives its whole result each epoch."""
    return isinstance(step, AggregateStep) and step.output_mode is OutputMode.COMPLETE
