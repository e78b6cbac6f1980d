"""The words a pipeline is written in: `source`, then methods on streams, each naming its step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from midstream.errors import GraphError
from midstream.graph.pipeline import Pipeline, join
from midstream.graph.steps import (
    AggregateStep,
    OutputMode,
    SinkStep,
    SourceStep,
    SqlStep,
    StatefulStep,
    StateTable,
    Step,
    TransformStep,
    UnionStep,
)
from midstream.state.compaction import CompactionPolicy
from midstream.state.tables import TableKind
from midstream.task.userfn import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from midstream.graph.steps import Aggregate, Schema
    from midstream.sinks.base import Sink


def source(id: str, load: Callable[[SparkSession], DataFrame]) -> Stream:
    """A stream of rows: `load` gives a streaming DataFrame, from whatever `spark.readStream` reads."""
    return Stream(SourceStep(id, load))


def pipeline(*pipelines: Pipeline) -> Pipeline:
    """One pipeline of several that were ended with `.sink(…)`, run together epoch by epoch."""
    return join(pipelines)


def table(schema: Schema, kind: Literal["value", "list"] = "value", range_column: str | None = None) -> StateTable:
    """A named table for `stateful(state={…})`: one row a key (`value`) or any number (`list`)."""
    return StateTable(schema, TableKind(kind), range_column)


@dataclass(frozen=True)
class Stream:
    """Rows flowing out of a step."""

    step: Step

    def transform(self, id: str, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Stateless work on each epoch's rows: any function from DataFrame to DataFrame."""
        return Stream(TransformStep(id, self.step, function))

    def sql(self, id: str, text: str) -> Stream:
        """Stateless work in SQL; the rows are the view `input`."""
        return Stream(SqlStep(id, self.step, text))

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
        output_mode: Literal["changed", "complete"] = "changed",
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
        **aggregates: Aggregate,
    ) -> Stream:
        """Aggregates by key, kept up to date: Spark's functions (`F.sum("x")`), SQL text, or `midstream.fold(…)`."""
        if not aggregates:
            raise GraphError.no_aggregates(id)
        clash = set(aggregates) & set(self.keys)
        if clash:
            raise GraphError.name_clash(id, sorted(clash))
        return Stream(
            AggregateStep(
                id,
                self.step,
                self.keys,
                _parallelism(id, parallelism),
                compaction or CompactionPolicy(),
                aggregates,
                OutputMode(output_mode),
            )
        )

    def stateful(
        self,
        id: str,
        function: Callable[..., Any],
        *,
        state: Schema | Mapping[str, StateTable],
        output: Schema,
        parallelism: int | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> Stream:
        """Your own function on tables, `(rows, state) -> (output, new_state)`, in pyarrow, polars or pandas.

        It sees an epoch's rows of a partition and the state of their keys, and gives back the output and the state
        those keys are to have: a key left out of it is forgotten. It must be pure: an epoch may be run again.
        With `state={"name": table(…), …}` the state comes and goes as a dict of tables.
        """
        named = isinstance(state, Mapping)
        tables = state if isinstance(state, Mapping) else {STATE: StateTable(state)}
        return self._stateful(id, function, tables, output, parallelism, compaction, named, per_key=False)

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
            )
        )


def _parallelism(id: str, given: int | None) -> int | None:
    if given is not None and given not in range(1, 4097):
        raise GraphError.bad_parallelism(id, given)
    return given
