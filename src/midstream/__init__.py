"""midstream: stateful PySpark streaming whose running pipelines can be changed.

>>> import midstream as ms
>>> orders = ms.source("orders", lambda spark: spark.readStream.format("rate").load())
>>> flow = orders.sql("clean", "SELECT * FROM input WHERE value > 0").sink("out", ms.sinks.noop())
>>> [step.id for step in flow.steps]
['orders', 'clean', 'out']
"""

from midstream import sinks
from midstream.aggregates.spec import fold
from midstream.changes.change import ChangeSet, Drain, Guard, Insert, Migrate, Rebalance, Remove, Replace, Rescale, Tune
from midstream.errors import MidstreamError
from midstream.eventtime.windows import (
    after_rows,
    at_watermark,
    every_epoch,
    global_window,
    session,
    sliding,
    tumbling,
    window_of_input,
)
from midstream.graph.begin import loop, pipeline, source, table
from midstream.graph.pipeline import Pipeline
from midstream.graph.stream import KeyedStream, Stream, WindowedStream
from midstream.state.compaction import CompactionPolicy
from midstream.task.userfn import TableUpdate

__all__ = [
    "ChangeSet",
    "CompactionPolicy",
    "Drain",
    "Guard",
    "Insert",
    "KeyedStream",
    "MidstreamError",
    "Migrate",
    "Pipeline",
    "Rebalance",
    "Remove",
    "Replace",
    "Rescale",
    "Stream",
    "TableUpdate",
    "Tune",
    "WindowedStream",
    "after_rows",
    "at_watermark",
    "every_epoch",
    "fold",
    "global_window",
    "loop",
    "pipeline",
    "session",
    "sinks",
    "sliding",
    "source",
    "table",
    "tumbling",
    "window_of_input",
]
