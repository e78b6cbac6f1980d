"""midstream: stateful PySpark streaming whose running pipelines can be changed.

>>> import midstream as ms
>>> orders = ms.source("orders", lambda spark: spark.readStream.format("rate").load())
>>> flow = orders.sql("clean", "SELECT * FROM input WHERE value > 0").sink("out", ms.sinks.noop())
>>> [step.id for step in flow.steps]
['orders', 'clean', 'out']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midstream import sinks
    from midstream.aggregates.spec import fold
    from midstream.changes.change import (
        ChangeSet,
        Drain,
        Guard,
        Insert,
        Migrate,
        Rebalance,
        Remove,
        Replace,
        Rescale,
        Tune,
    )
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

_HOMES = {
    "ChangeSet": "midstream.changes.change",
    "CompactionPolicy": "midstream.state.compaction",
    "Drain": "midstream.changes.change",
    "Guard": "midstream.changes.change",
    "Insert": "midstream.changes.change",
    "KeyedStream": "midstream.graph.stream",
    "MidstreamError": "midstream.errors",
    "Migrate": "midstream.changes.change",
    "Pipeline": "midstream.graph.pipeline",
    "Rebalance": "midstream.changes.change",
    "Remove": "midstream.changes.change",
    "Replace": "midstream.changes.change",
    "Rescale": "midstream.changes.change",
    "Stream": "midstream.graph.stream",
    "TableUpdate": "midstream.task.userfn",
    "Tune": "midstream.changes.change",
    "WindowedStream": "midstream.graph.stream",
    "after_rows": "midstream.eventtime.windows",
    "at_watermark": "midstream.eventtime.windows",
    "every_epoch": "midstream.eventtime.windows",
    "fold": "midstream.aggregates.spec",
    "global_window": "midstream.eventtime.windows",
    "loop": "midstream.graph.begin",
    "pipeline": "midstream.graph.begin",
    "session": "midstream.eventtime.windows",
    "sinks": "midstream.sinks",
    "sliding": "midstream.eventtime.windows",
    "source": "midstream.graph.begin",
    "table": "midstream.graph.begin",
    "tumbling": "midstream.eventtime.windows",
    "window_of_input": "midstream.eventtime.windows",
}
"""Where each name is defined. It is loaded when it is first asked for: processes that merge and copy state import only
what is below `midstream.state`, and are started beside a stream that wants the processor."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'midstream' has no attribute '{name}'")
    module = import_module(_HOMES[name])
    found = module if _HOMES[name] == f"midstream.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
