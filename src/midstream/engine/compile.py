"""From a pipeline to what epochs need: every step analysed by Catalyst against real schemas before anything runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from midstream.aggregates.function import AggregateFunction
from midstream.aggregates.plan import AggregatePlan, plan_aggregates
from midstream.aggregates.retractions import CHANGE, RetractingAggregate
from midstream.aggregates.spec import AggregateSpec
from midstream.engine.columns import to_spec
from midstream.engine.failure import step_error
from midstream.engine.internals import settled, slots
from midstream.engine.joins import PlannedJoin, plan_join
from midstream.engine.partials import spanned
from midstream.engine.windows import Assignment, assignment, check_time, event_time
from midstream.errors import ChangeError, GraphError, MidstreamError
from midstream.eventtime.counted import CountWindows
from midstream.eventtime.finish import Aggregated, Applied
from midstream.eventtime.retained import RetainedWindows
from midstream.eventtime.sessions import Sessions
from midstream.eventtime.timers import WithTimers
from midstream.eventtime.triggered import TriggeredAggregate
from midstream.eventtime.windowed import WindowedAggregate
from midstream.eventtime.windows import (
    END,
    START,
    AfterRows,
    AtWatermark,
    Clock,
    Emit,
    Global,
    Session,
    Trigger,
    Windowing,
)
from midstream.graph.pipeline import Pipeline
from midstream.graph.steps import (
    SQL_INPUT,
    AggregateStep,
    DedupStep,
    JoinStep,
    KeyedStep,
    LateStep,
    LoopStep,
    OutputMode,
    SinkStep,
    SourceStep,
    SqlStep,
    StatefulStep,
    Step,
    TopStep,
    TransformStep,
    UnionStep,
    WindowStep,
)
from midstream.operators.dedup import Dedup
from midstream.operators.top import RANK, Top
from midstream.schemas import differences, is_keyable, quoted, to_arrow, to_spark
from midstream.state.tables import KeyedFunction, TableSpec, TimedFunction
from midstream.task.userfn import PerKey, UserFunction
from midstream.task.windowfn import WindowFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_ONE_INPUT = threading.Lock()
"""A trial runs beside the stream in the same session: nobody may replace the view between making and resolving it."""


@dataclass(frozen=True)
class CompiledKeyed:
    """A keyed step ready to run. `aggregates` is set when rows can be aggregated before the exchange, `windows` when
    they belong to windows, which are part of the key then."""

    step: KeyedStep
    function: KeyedFunction | TimedFunction
    output: StructType
    parallelism: int
    aggregates: AggregatePlan | None = None
    windows: Assignment | None = None
    join: PlannedJoin | None = None
    required: str | None = None
    """A column without which a row is left out."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns its rows are brought together by."""
        if self.join is not None:
            return self.join.keys
        if self.windows is None or isinstance(self.windows.window, Session):
            return self.step.keys
        return (*self.step.keys, START, END)

    @property
    def shipped_keys(self) -> tuple[str, ...]:
        """The columns of the key and of the window that its rows bring."""
        return (*self.step.keys, START, END) if self.windows is not None else self.step.keys

    @property
    def result_keys(self) -> tuple[str, ...]:
        """The columns of which it gives one row for each combination; none when it gives several."""
        if isinstance(self.step, JoinStep | WindowStep) or isinstance(self.function, CountWindows):
            return ()
        if CHANGE in self.output.names and isinstance(self.step, AggregateStep):
            return ()
        if isinstance(self.step, TopStep) and self.step.ranked:
            return (*self.step.keys, RANK)
        return self.shipped_keys

    @property
    def indivisible(self) -> str | None:
        """Why its keys cannot be in parts; None when they can."""
        if self.aggregates is None or not isinstance(self.function, AggregateFunction):
            return "only aggregates by key can, without windows and retractions"
        return self.aggregates.indivisible

    @property
    def is_timed(self) -> bool:
        """Whether it goes by a time, that of events or that of the clock."""
        return isinstance(self.function, TimedFunction)


@dataclass(frozen=True)
class CompiledSink:
    """What is known of the rows a sink receives."""

    step: SinkStep
    schema: StructType
    keys: tuple[str, ...]
    complete: bool


@dataclass(frozen=True)
class Analysed:
    """What a step gives: an empty DataFrame of its schema, the keys its rows have, whether they are a whole result."""

    step: Step
    frame: DataFrame
    keys: tuple[str, ...]
    complete: bool


@dataclass(frozen=True)
class Compiled:
    """A pipeline whose every step is known to fit the next."""

    pipeline: Pipeline
    schemas: Mapping[str, StructType]
    keyed: Mapping[str, CompiledKeyed]
    sinks: Mapping[str, CompiledSink]
    analysed: Mapping[str, Analysed] = field(default_factory=dict, repr=False)

    @property
    def source_schemas(self) -> dict[str, pa.Schema]:
        return {source.id: to_arrow(self.schemas[source.id]) for source in self.pipeline.sources}


def apply_stateless(step: Step, inputs: list[DataFrame], spark: SparkSession) -> DataFrame:
    """The DataFrame of a stateless step given those of its inputs."""
    if isinstance(step, TransformStep):
        result = step.function(inputs[0])
        if not hasattr(result, "schema"):
            raise GraphError.step_failed(step.id, f"its function gave {type(result).__name__}, not a DataFrame")
        return result
    if isinstance(step, SqlStep):
        with _ONE_INPUT:
            for view, frame in zip(step.views, inputs, strict=True):
                frame.createOrReplaceTempView(view)
            return settled(spark.sql(step.text))
    if isinstance(step, UnionStep):
        joined = inputs[0]
        for other in inputs[1:]:
            joined = joined.unionByName(other)
        return joined
    raise TypeError(f"{step.kind} is not stateless")


def compile_pipeline(
    pipeline: Pipeline, sources: Mapping[str, DataFrame], spark: SparkSession, known: Compiled | None = None
) -> Compiled:
    """Analyse every step on empty input. Errors name the step; nothing has been touched yet.

    Steps that are the very same as in a pipeline that is `known` are not analysed again.
    """
    views = {SQL_INPUT, *(view for step in pipeline.steps if isinstance(step, SqlStep) for view in step.views)}
    before = {view: _temporary_view(view, spark) for view in views}
    try:
        return _Compiler(pipeline, sources, spark, known).compile()
    finally:
        for view, frame in before.items():
            spark.catalog.dropTempView(view)
            if frame is not None:
                frame.createOrReplaceTempView(view)


def _temporary_view(name: str, spark: SparkSession) -> DataFrame | None:
    """A view of the user's own, which an SQL step takes the name of for a moment."""
    known = spark.catalog.tableExists(name) and spark.catalog.getTable(name).isTemporary
    return settled(spark.table(name)) if known else None


class _Compiler:
    def __init__(
        self, pipeline: Pipeline, sources: Mapping[str, DataFrame], spark: SparkSession, known: Compiled | None
    ) -> None:
        self._pipeline = pipeline
        self._sources = sources
        self._spark = spark
        self._known = known
        self._analysed: dict[str, Analysed] = {}
        self._keyed: dict[str, CompiledKeyed] = {}
        self._sinks: dict[str, CompiledSink] = {}

    def compile(self) -> Compiled:
        self._pipeline.check_loops()
        for step in self._pipeline.steps:
            try:
                if not self._take(step):
                    self._add(step)
            except MidstreamError:
                raise
            except Exception as cause:
                raise step_error(step, cause) from cause
        schemas = {id_: analysed.frame.schema for id_, analysed in self._analysed.items()}
        for feedback in self._pipeline.feedbacks:
            wanted, given = to_arrow(schemas[feedback.to]), to_arrow(schemas[feedback.input.id])
            if told := differences(wanted, given):
                raise GraphError.bad_feedback(feedback.id, feedback.to, told)
        self._check_splits()
        return Compiled(self._pipeline, schemas, self._keyed, self._sinks, self._analysed)

    def _check_splits(self) -> None:
        """Keys in parts give their results after the round in which steps do what is due by event time: too late for
        such a step behind them, if that made rows for them."""
        timed = {id_ for id_, keyed in self._keyed.items() if keyed.is_timed}
        for id_, keyed in self._keyed.items():
            behind = self._pipeline.behind({id_}) - {id_}
            if keyed.step.splits and timed & behind and id_ in self._pipeline.behind(timed - behind):
                raise ChangeError.indivisible(id_, "it lies between steps that go by event time")

    def _take(self, step: Step) -> bool:
        """Take over a step that is known with all above it: steps are immutable, so the same one is the same."""
        if self._known is None:
            return False
        analysed = self._known.analysed.get(step.id)
        if analysed is not None and analysed.step is step:
            self._analysed[step.id] = analysed
            if step.id in self._known.keyed:
                self._keyed[step.id] = self._known.keyed[step.id]
            return True
        sink = self._known.sinks.get(step.id)
        if sink is not None and sink.step is step:
            self._sinks[step.id] = sink
            return True
        return False

    def _add(self, step: Step) -> None:
        if isinstance(step, SourceStep):
            schema = self._sources[step.id].schema
            if step.watermark is not None:
                check_time(f"Source '{step.id}'", step.watermark.column, schema)
            self._set(step, self._empty(schema), (), complete=False)
            return
        if isinstance(step, LoopStep):
            self._set(step, self._empty(to_spark(step.id, "rows", step.schema)), (), complete=False)
            return
        first = self._analysed[step.inputs[0].id]
        if isinstance(step, LateStep):
            self._set(step, self._analysed[step.of.input.id].frame, (), complete=False)
        elif isinstance(step, SinkStep):
            self._sinks[step.id] = CompiledSink(step, first.frame.schema, first.keys, first.complete)
        elif isinstance(step, KeyedStep):
            self._check_keys(step, first.frame.schema)
            if isinstance(step, JoinStep):
                compiled = self._compile_join(step, first.frame.schema)
            else:
                compiled = self._compile_keyed(step, first.frame)
            if step.splits and compiled.indivisible is not None:
                raise ChangeError.indivisible(step.id, compiled.indivisible)
            self._keyed[step.id] = compiled
            complete = isinstance(step, AggregateStep) and step.output_mode is OutputMode.COMPLETE
            keys = compiled.result_keys if set(compiled.result_keys) <= set(compiled.output.names) else ()
            self._set(step, self._empty(compiled.output), keys, complete)
        else:
            inputs = [self._analysed[source.id].frame for source in step.inputs]
            frame = apply_stateless(step, inputs, self._spark)
            kept = first.keys if not isinstance(step, UnionStep) else ()
            keys = kept if _keeps(first.frame.schema, frame.schema, kept) else ()
            self._set(step, frame, keys, first.complete and not isinstance(step, UnionStep))

    def _set(self, step: Step, frame: DataFrame, keys: tuple[str, ...], complete: bool) -> None:
        self._analysed[step.id] = Analysed(step, frame, keys, complete)

    def _empty(self, schema: StructType) -> DataFrame:
        return self._spark.createDataFrame([], schema)

    def _check_keys(self, step: KeyedStep, schema: StructType) -> None:
        for key in step.keys:
            if key not in schema.names:
                raise GraphError.unknown_key(step.id, key, schema.names)
            if not is_keyable(schema[key].dataType):
                raise GraphError.key_type(step.id, key, schema[key].dataType.simpleString())

    def _compile_keyed(self, step: KeyedStep, frame: DataFrame) -> CompiledKeyed:
        parallelism = step.parallelism or slots(self._spark)
        if isinstance(step, AggregateStep):
            specs = tuple(to_spec(name, given, self._spark) for name, given in step.aggregates.items())
            if step.windowing is not None:
                return self._compile_windowed(step, step.windowing, frame, specs, parallelism)
            complete = step.output_mode is OutputMode.COMPLETE
            plan = plan_aggregates(frame, step.keys, specs, complete)
            if step.output_mode is OutputMode.RETRACTIONS:
                retracting = RetractingAggregate(plan.function)
                return CompiledKeyed(step, retracting, _with_change(plan.output_schema), parallelism, plan)
            return CompiledKeyed(step, plan.function, plan.output_schema, parallelism, plan)
        if isinstance(step, WindowStep):
            return self._compile_retained(step, frame, parallelism)
        if isinstance(step, TopStep | DedupStep):
            built = _top(step, frame.schema) if isinstance(step, TopStep) else _dedup(step, frame.schema)
            required = built.time if isinstance(built, Dedup) else None
            return CompiledKeyed(step, built, from_arrow_schema(built.output), parallelism, required=required)
        assert isinstance(step, StatefulStep)
        function = _user_function(step, frame.schema)
        timed = _with_timers(step, function) if step.timer is not None else function
        return CompiledKeyed(step, timed, to_spark(step.id, "output", step.output), parallelism)

    def _compile_join(self, step: JoinStep, left: StructType) -> CompiledKeyed:
        plan = plan_join(step, left, self._analysed[step.other.id].frame.schema)
        parallelism = step.parallelism or slots(self._spark)
        return CompiledKeyed(step, plan.function, plan.output, parallelism, join=plan)

    def _compile_windowed(
        self,
        step: AggregateStep,
        windowing: Windowing,
        frame: DataFrame,
        specs: tuple[AggregateSpec, ...],
        parallelism: int,
    ) -> CompiledKeyed:
        if isinstance(windowing.window, Global):
            return self._compile_triggered(step, windowing.window.trigger, frame, specs, parallelism)
        windows = assignment(step, windowing, frame.schema)
        keys = (*step.keys, START, END)
        is_session = isinstance(windowing.window, Session)
        with_windows = windows.apply(frame)
        plan = plan_aggregates(with_windows, keys, specs, complete=False, range_column=END, kept=is_session)
        function: TimedFunction = WindowedAggregate(plan.function, windowing.lateness, windowing.emit)
        if isinstance(windowing.window, Session):
            gap, lateness = windowing.window.gap, windowing.lateness
            # How rows travel is how they are kept: one way for as long as the step lives.
            plan = replace(plan, supports_grouped=False, span=gap if plan.supports_grouped else None)
            rows, columns = with_windows, [*map(quoted, keys), *plan.per_row_sql]
            if plan.span is not None:
                rows, columns = spanned(with_windows, step.keys, plan)
            shipped = rows.selectExpr(*columns).schema
            function = Sessions(Aggregated(plan.function), *_split(shipped, step.keys), lateness)
        output = plan.output_schema if windowing.emit is not Emit.RETRACTIONS else _with_change(plan.output_schema)
        return CompiledKeyed(step, function, output, parallelism, plan, windows)

    def _compile_triggered(
        self,
        step: AggregateStep,
        trigger: Trigger,
        frame: DataFrame,
        specs: tuple[AggregateSpec, ...],
        parallelism: int,
    ) -> CompiledKeyed:
        plan = plan_aggregates(frame, step.keys, specs, complete=False, kept=isinstance(trigger, AfterRows))
        if isinstance(trigger, AfterRows):
            plan = replace(plan, supports_grouped=False)
            shipped = frame.selectExpr(*map(quoted, step.keys), *plan.per_row_sql).schema
            counted = CountWindows(Aggregated(plan.function), *_split(shipped, step.keys), trigger.n)
            return CompiledKeyed(step, counted, plan.output_schema, parallelism, plan)
        assert isinstance(trigger, AtWatermark)
        event_time(step, step, None)  # raises when no source above has a watermark
        triggered = TriggeredAggregate(plan.function, trigger.every)
        return CompiledKeyed(step, triggered, plan.output_schema, parallelism, plan)

    def _compile_retained(self, step: WindowStep, frame: DataFrame, parallelism: int) -> CompiledKeyed:
        output = to_spark(step.id, "output", step.output)
        function = WindowFunction(step.id, step.function, to_arrow(output))
        window, lateness = step.windowing.window, step.windowing.lateness
        if isinstance(window, Global):
            assert isinstance(window.trigger, AfterRows)
            counted = CountWindows(Applied(function), *_split(frame.schema, step.keys), window.trigger.n)
            return CompiledKeyed(step, counted, output, parallelism)
        windows = assignment(step, step.windowing, frame.schema)
        schema = windows.apply(frame).schema
        if isinstance(window, Session):
            sessions = Sessions(Applied(function), *_split(schema, step.keys), lateness)
            return CompiledKeyed(step, sessions, output, parallelism, windows=windows)
        retained = RetainedWindows(function, *_split(schema, (*step.keys, START, END)), lateness)
        return CompiledKeyed(step, retained, output, parallelism, windows=windows)


def _keeps(before: StructType, after: StructType, keys: tuple[str, ...]) -> bool:
    return all(key in after.names and after[key].dataType == before[key].dataType for key in keys)


def _with_change(output: StructType) -> StructType:
    return StructType([*output, StructField(CHANGE, StringType(), nullable=False)])


def _split(schema: StructType, keys: tuple[str, ...]) -> tuple[pa.Schema, pa.Schema]:
    """The columns of the key, and the others."""
    of_key = StructType([schema[key] for key in keys])
    return to_arrow(of_key), to_arrow(StructType([field for field in schema if field.name not in keys]))


def _top(step: TopStep, schema: StructType) -> Top:
    keys, values = _split(schema, step.keys)
    for column, _ in step.order:
        if column not in values.names:
            raise GraphError.unknown_key(step.id, column, values.names)
    if RANK in schema.names and step.ranked:
        raise GraphError.name_clash(step.id, [RANK])
    return Top(keys, values, step.n, step.order, step.ranked)


def _dedup(step: DedupStep, schema: StructType) -> Dedup:
    time = event_time(step, step, step.time)
    check_time(f"Step '{step.id}'", time, schema)
    return Dedup(_split(schema, step.keys)[0], to_arrow(schema), time)


def _with_timers(step: StatefulStep, function: UserFunction) -> WithTimers:
    timer = str(step.timer)
    values = function.tables[0].values
    if timer not in values.names:
        raise GraphError.bad_timer(step.id, timer, f"the columns of its state are {', '.join(values.names)}")
    if not pa.types.is_timestamp(values.field(timer).type):
        raise GraphError.bad_timer(step.id, timer, f"it is of type {values.field(timer).type}")
    if step.clock is Clock.EVENT:
        event_time(step, step, timer)  # raises when no source above has a watermark
    return WithTimers(function, timer)


def _user_function(step: StatefulStep, schema: StructType) -> UserFunction:
    keys = to_arrow(StructType([StructField(k, schema[k].dataType) for k in step.keys]))
    tables = []
    for name, table in step.state.items():
        values = to_arrow(to_spark(step.id, f"'{name}' state", table.schema))
        clash = set(values.names) & set(keys.names)
        if clash:
            raise GraphError.name_clash(step.id, sorted(clash))
        if table.range_column not in (None, *keys.names, *values.names):
            raise GraphError.unknown_key(step.id, str(table.range_column), [*keys.names, *values.names])
        tables.append(TableSpec(name, keys, values, table.kind, table.range_column))
    output = to_arrow(to_spark(step.id, "output", step.output))
    function = step.function
    if step.per_key:
        only = tables[0]
        function = PerKey(step.function, step.keys, tuple(only.values.names), only.schema, output)
    return UserFunction(step.id, function, step.keys, tuple(tables), output, step.named)
