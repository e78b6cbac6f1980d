"""Streams, the words a pipeline is written in: methods, each of which names its step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from midstream.aggregates.retractions import CHANGE
from midstream.errors import GraphError
from midstream.eventtime.durations import Duration, microseconds
from midstream.eventtime.sides import How
from midstream.eventtime.windows import (
    END,
    START,
    AfterRows,
    Clock,
    Emit,
    EveryEpoch,
    Global,
    OfInput,
    Session,
    Window,
    Windowing,
)
from midstream.graph.pipeline import Pipeline
from midstream.graph.steps import (
    SQL_INPUT,
    AggregateStep,
    DedupStep,
    FeedbackStep,
    JoinStep,
    LateStep,
    LoopStep,
    OutputMode,
    SinkStep,
    SqlStep,
    StatefulStep,
    StateTable,
    Step,
    TopStep,
    TransformStep,
    UnionStep,
    WindowStep,
)
from midstream.sinks.feedback import Feedback
from midstream.state.compaction import CompactionPolicy
from midstream.task.userfn import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from midstream.graph.steps import Aggregate, Schema
    from midstream.sinks.base import Sink


@dataclass(frozen=True)
class Stream:
    """Rows flowing out of a step."""

    step: Step

    def transform(self, id: str, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Stateless work on each epoch's rows: any function from DataFrame to DataFrame."""
        return Stream(TransformStep(id, self.step, function))

    def sql(self, id: str, text: str, **others: Stream) -> Stream:
        """Stateless work in SQL on each epoch's rows: those of this stream are the view `input`, those of others views
        under the names they are given. A join in it joins rows of one epoch; `join(…)` joins streams."""
        if SQL_INPUT in others:
            raise GraphError.name_clash(id, [SQL_INPUT])
        return Stream(SqlStep(id, self.step, text, tuple((name, other.step) for name, other in others.items())))

    def union(self, id: str, *others: Stream) -> Stream:
        """This stream and others as one; columns are matched by name."""
        if not others:
            raise GraphError(
                "EMPTY_UNION", f"The union '{id}' has nothing to add to its stream.", hint="name the other streams."
            )
        return Stream(UnionStep(id, (self.step, *(other.step for other in others))))

    def key_by(self, *columns: str) -> KeyedStream:
        """Rows by key, for a step with state. Null is a key like any other."""
        if not columns or not all(isinstance(column, str) for column in columns):
            raise GraphError.bad_keys(columns)
        return KeyedStream(self.step, columns)

    def window(
        self,
        window: Window,
        *,
        time: str | None = None,
        lateness: Duration = "0 seconds",
        clock: Literal["event", "processing"] = "event",
    ) -> WindowedStream:
        """Rows by window of their event time, all keys together; `key_by(…).window(…)` is by key."""
        return KeyedStream(self.step, ()).window(window, time=time, lateness=lateness, clock=clock)

    def join(
        self,
        id: str,
        other: Stream,
        on: str | Sequence[str],
        *,
        how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner",
        window: Window | None = None,
        within: tuple[Duration, Duration] | None = None,
        times: tuple[str | None, str | None] = (None, None),
        lateness: Duration = "0 seconds",
        keep_all: bool = False,
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """Rows of this stream with those of another that have the same key; a null equals nothing.

        With a `window`, rows of one window are joined when it is over. `within=("5 minutes", "1 hour")` joins a row
        with those of the other stream from five minutes before it to one hour after it: pairs as they come, rows
        without partner when none can come any more. With `keep_all` rows are joined whenever they come, and both
        streams are kept for good. `times` names the columns of event time, if not those of the sources. The result has
        the keys, `window_start` and `window_end` if there are windows, and the other columns of both.
        """
        keys = (on,) if isinstance(on, str) else tuple(on)
        if not keys or not all(isinstance(key, str) for key in keys):
            raise GraphError.bad_keys(on)
        ways = [window is not None, within is not None, keep_all]
        if sum(ways) != 1 or isinstance(window, Session | Global) or (keep_all and how != "inner"):
            raise GraphError.bad_join(id)
        windowing = None
        if window is not None:
            windowing = Windowing(window, None, microseconds("the allowed lateness", lateness, least=0))
        reach = None
        if within is not None:
            before, after = (microseconds("the time between joined rows", length, least=0) for length in within)
            reach = (-before, after)
        compaction = compaction or CompactionPolicy()
        partitions = _parallelism(id, parallelism)
        step = JoinStep(id, self.step, keys, partitions, compaction, other.step, How(how), windowing, reach, times)
        return Stream(step)

    def lookup(
        self,
        id: str,
        table: Stream,
        on: str | Sequence[str],
        *,
        how: Literal["inner", "left"] = "left",
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """Each row with the latest row another stream has given for its key, at the moment it comes.

        The other stream is a table: its rows replace each other by key. In one epoch its rows come first. A null in
        the key is a key like any other.
        """
        keys = (on,) if isinstance(on, str) else tuple(on)
        if not keys or not all(isinstance(key, str) for key in keys):
            raise GraphError.bad_keys(on)
        if how not in ("inner", "left"):
            raise GraphError.bad_join(id)
        partitions = _parallelism(id, parallelism)
        compaction = compaction or CompactionPolicy()
        return Stream(JoinStep(id, self.step, keys, partitions, compaction, table.step, How(how), latest=True))

    def late(self, id: str) -> Stream:
        """The rows that came too late for this step with windows, as it was given them. Those of sessions are only
        counted: that they are late shows when their key is looked up."""
        step = self.step
        windowing = step.windowing if isinstance(step, AggregateStep | WindowStep) else None
        if not isinstance(step, AggregateStep | WindowStep) or windowing is None or step.is_clocked:
            raise GraphError.nothing_is_late(id, step.id)
        if isinstance(windowing.window, Session | Global):
            raise GraphError.nothing_is_late(id, step.id)
        return Stream(LateStep(id, step))

    def feedback(self, id: str, to: Stream) -> Pipeline:
        """Close a loop: rows of this stream enter it again in the next epoch. They have the columns the loop has."""
        if not isinstance(to.step, LoopStep):
            raise GraphError.no_loop(id, to.step.id)
        return Pipeline((FeedbackStep(id, self.step, Feedback(to.step.id), to.step.id),))

    def sink(self, id: str, sink: Sink) -> Pipeline:
        """End the stream in a sink; the result can be started, or joined with others by `pipeline(…)`."""
        return Pipeline((SinkStep(id, self.step, sink),))


@dataclass(frozen=True)
class KeyedStream:
    """Rows by key, on the way into a step with state."""

    step: Step
    keys: tuple[str, ...]

    def aggregate(
        self,
        id: str,
        *,
        output_mode: Literal["changed", "complete", "retractions"] = "changed",
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
        **aggregates: Aggregate,
    ) -> Stream:
        """Aggregates by key, kept up to date: Spark's functions (`F.sum("x")`), SQL text, or `midstream.fold(…)`.

        An epoch gives the results of the keys it has changed, or with `output_mode="complete"` all of them. With
        `"retractions"` it gives what it takes back too, and a column `change` tells `-` from `+`.
        """
        mode = OutputMode(output_mode)
        return _aggregate(id, self.step, self.keys, parallelism, compaction, aggregates, mode, None)

    def top(
        self,
        id: str,
        n: int,
        by: str | Sequence[str],
        *,
        descending: bool = True,
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """The first `n` rows of each key by some columns, the greatest first unless told otherwise, nulls last.

        Columns may each say their own way: `by=["price desc", "at asc"]`. An epoch gives all of them for every key for
        which they have changed, with a column `rank` from 1 on. Of rows that are equal in those columns, the one that
        came first is first.
        """
        return self._top(id, n, by, descending, True, parallelism, compaction)

    def latest(
        self,
        id: str,
        by: str | Sequence[str],
        *,
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """The latest row of each key: the one that is greatest in some columns, such as a time."""
        return self._top(id, 1, by, True, False, parallelism, compaction)

    def _top(
        self,
        id: str,
        n: int,
        by: str | Sequence[str],
        descending: bool,
        ranked: bool,
        parallelism: int | None,
        compaction: CompactionPolicy | None,
    ) -> Stream:
        columns = (by,) if isinstance(by, str) else tuple(by)
        if n < 1 or not columns or not all(isinstance(column, str) for column in columns):
            raise GraphError.bad_top(id, n, by)
        order = tuple(_ordering(column, descending) for column in columns)
        partitions = _parallelism(id, parallelism)
        return Stream(TopStep(id, self.step, self.keys, partitions, compaction or CompactionPolicy(), n, order, ranked))

    def dedup(
        self,
        id: str,
        *,
        time: str | None = None,
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """Of each key only the first row: repetitions are left out for as long as the delay of the watermark lets them
        come. Of several that come in one epoch the earliest by `time` is given."""
        partitions = _parallelism(id, parallelism)
        return Stream(DedupStep(id, self.step, self.keys, partitions, compaction or CompactionPolicy(), time))

    def window(
        self,
        window: Window,
        *,
        time: str | None = None,
        lateness: Duration = "0 seconds",
        clock: Literal["event", "processing"] = "event",
    ) -> WindowedStream:
        """Rows by key and window of their event time.

        `time` names the column; without it, it is the event time of the sources. A window takes rows until `lateness`
        after the watermark has passed its end. With `clock="processing"` the time of a row is when its epoch began, and
        windows are over when that time of the clock has come.
        """
        late = microseconds("the allowed lateness", lateness, least=0)
        windowing = Windowing(window, time, late, clock=Clock(clock))
        if windowing.clock is Clock.PROCESSING and (late or time is not None or isinstance(window, OfInput | Global)):
            raise GraphError.bad_clock()
        return WindowedStream(self.step, self.keys, windowing)

    def stateful(
        self,
        id: str,
        function: Callable[..., Any],
        *,
        state: Schema | Mapping[str, StateTable],
        output: Schema,
        timer: str | None = None,
        clock: Literal["event", "processing"] = "event",
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """Your own function on tables, `(rows, state) -> (output, new_state)`, in pyarrow, polars or pandas.

        It sees an epoch's rows of a partition and the state of their keys, and gives back the output and the state
        those keys are to have: a key left out of it is forgotten. It must be pure: an epoch may be run again.
        With `state={"name": table(…), …}` the state comes and goes as a dict of tables.

        `timer` names a column of the state, a time: when the watermark has passed it, the function is called with the
        state of that key and no rows of it. It then takes a third argument, the watermark (None before there is one).
        With `clock="processing"` the time is that of the clock on the wall.
        """
        named = isinstance(state, Mapping)
        tables = state if isinstance(state, Mapping) else {STATE: StateTable(state)}
        if timer is not None and named:
            raise GraphError.bad_timer(id, timer, "it has several tables of state")
        return self._stateful(id, function, tables, output, parallelism, compaction, named, False, timer, Clock(clock))

    def stateful_per_key(
        self,
        id: str,
        function: Callable[..., Any],
        *,
        state: Schema,
        output: Schema,
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """Your own function key by key: `(key, rows, state) -> (outputs, new_state)` on tuples, lists and dicts.

        `state` is None for a new key, and returning None forgets the key. Convenient; `stateful` is far faster.
        """
        tables = {STATE: StateTable(state)}
        return self._stateful(id, function, tables, output, parallelism, compaction, named=False, per_key=True)

    def _stateful(
        self,
        id: str,
        function: Callable[..., Any],
        tables: Mapping[str, StateTable],
        output: Schema,
        parallelism: int | None,
        compaction: CompactionPolicy | None,
        named: bool,
        per_key: bool,
        timer: str | None = None,
        clock: Clock = Clock.EVENT,
    ) -> Stream:
        if not callable(function):
            raise GraphError.not_callable(id, function)
        return Stream(
            StatefulStep(
                id,
                self.step,
                self.keys,
                _parallelism(id, parallelism),
                compaction or CompactionPolicy(),
                function,
                tables,
                output,
                named,
                per_key,
                timer,
                clock,
            )
        )


@dataclass(frozen=True)
class WindowedStream:
    """Rows by key and window, on the way into a step with state."""

    step: Step
    keys: tuple[str, ...]
    windowing: Windowing

    def aggregate(
        self,
        id: str,
        *,
        emit: Literal["closed", "changed", "retractions"] = "closed",
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
        **aggregates: Aggregate,
    ) -> Stream:
        """Aggregates by key and window; its rows have the keys, `window_start`, `window_end` and the results.

        A window gives its rows once, when it is closed, or with `emit="changed"` in every epoch that changes it. With
        `emit="retractions"` it then also gives what it takes back, and a column `change` tells `-` from `+`. A global
        window has no start and no end, and gives results when its trigger says so.
        """
        windowing = replace(self.windowing, emit=Emit(emit))
        window, mode = windowing.window, OutputMode.CHANGED
        if isinstance(window, Session) and (not self.keys or windowing.emit is not Emit.CLOSED):
            raise GraphError.bad_session(id)
        if isinstance(window, Global) and isinstance(window.trigger, EveryEpoch):
            mode = OutputMode.RETRACTIONS if windowing.emit is Emit.RETRACTIONS else mode
            return _aggregate(id, self.step, self.keys, parallelism, compaction, aggregates, mode, None)
        if isinstance(window, Global) and windowing.emit is Emit.RETRACTIONS:
            raise GraphError.bad_trigger(id, "gives results that are not taken back")
        return _aggregate(id, self.step, self.keys, parallelism, compaction, aggregates, mode, windowing)

    def apply(
        self,
        id: str,
        function: Callable[..., Any],
        *,
        output: Schema,
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """Your own function of all rows of windows that are over: `(rows) -> output` in pyarrow, polars or pandas.

        It sees the rows of several keys and windows at once, with `window_start` and `window_end`. All rows of a window
        are kept until it is closed; what can be said with aggregates takes far less.
        """
        if not callable(function):
            raise GraphError.not_callable(id, function)
        window = self.windowing.window
        if isinstance(window, Global) and not isinstance(window.trigger, AfterRows):
            raise GraphError.bad_trigger(id, "would keep rows for good")
        if isinstance(window, Session) and not self.keys:
            raise GraphError.bad_session(id)
        compaction, partitions = compaction or CompactionPolicy(), _parallelism(id, parallelism)
        return Stream(WindowStep(id, self.step, self.keys, partitions, compaction, self.windowing, function, output))


def _aggregate(
    id: str,
    step: Step,
    keys: tuple[str, ...],
    parallelism: int | None,
    compaction: CompactionPolicy | None,
    aggregates: Mapping[str, Aggregate],
    output_mode: OutputMode,
    windowing: Windowing | None,
) -> Stream:
    if not aggregates:
        raise GraphError.no_aggregates(id)
    bounded = windowing is not None and not isinstance(windowing.window, Global)
    taken = {*keys, *((START, END) if bounded else ())}
    if output_mode is OutputMode.RETRACTIONS or (windowing is not None and windowing.emit is Emit.RETRACTIONS):
        taken.add(CHANGE)
    clash = set(aggregates) & taken
    if clash:
        raise GraphError.name_clash(id, sorted(clash))
    compaction = compaction or CompactionPolicy()
    return Stream(
        AggregateStep(id, step, keys, _parallelism(id, parallelism), compaction, aggregates, output_mode, windowing)
    )


def _ordering(given: str, descending: bool) -> tuple[str, str]:
    """A column and its direction, of `price`, `price desc` or `price asc`."""
    column, _, word = given.rpartition(" ")
    if column and word.lower() in ("asc", "desc"):
        return column, "descending" if word.lower() == "desc" else "ascending"
    return given, "descending" if descending else "ascending"


def _parallelism(id: str, given: int | None) -> int | None:
    if given is not None and given not in range(1, 4097):
        raise GraphError.bad_parallelism(id, given)
    return given
