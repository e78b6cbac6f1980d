"""Where a pipeline begins: its sources and loops, the tables of its functions, and the whole of its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from midstream.eventtime.durations import Duration, microseconds
from midstream.graph.pipeline import Pipeline, join
from midstream.graph.steps import LoopStep, SourceStep, StateTable, Watermark
from midstream.graph.stream import Stream
from midstream.state.tables import TableKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from midstream.graph.steps import Schema


def source(
    id: str,
    load: Callable[[SparkSession], DataFrame],
    *,
    event_time: str | None = None,
    delay: Duration = "0 seconds",
    idle_after: Duration | None = None,
) -> Stream:
    """A stream of rows: `load` gives a streaming DataFrame, from whatever `spark.readStream` reads.

    `event_time` names the column with the time of each row. The watermark of the source is the latest such time less
    `delay`: windows that end before it are closed. Of several sources the least watermark counts; one that has given no
    rows for `idle_after` does not hold the others back.
    """
    if event_time is None:
        return Stream(SourceStep(id, load))
    idle = microseconds("the time after which a source is idle", idle_after) if idle_after is not None else None
    delayed = microseconds("the delay of a watermark", delay, least=0)
    return Stream(SourceStep(id, load, Watermark(event_time, delayed, idle)))


def loop(id: str, schema: Schema) -> Stream:
    """The beginning of a loop: rows that a later step ends with `.feedback(…)` enter here in the next epoch.

    Rows under way in a loop are part of the checkpoint. A run that ends by itself ends when there are none left.
    """
    return Stream(LoopStep(id, schema))


def pipeline(*pipelines: Pipeline) -> Pipeline:
    """One pipeline of several that were ended with `.sink(…)`, run together epoch by epoch."""
    return join(pipelines)


def table(schema: Schema, kind: Literal["value", "list"] = "value", range_column: str | None = None) -> StateTable:
    """A named table for `stateful(state={…})`: one row a key (`value`) or any number (`list`)."""
    return StateTable(schema, TableKind(kind), range_column)
