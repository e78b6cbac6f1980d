"""Whether to aggregate before the exchange: decided step by step, from the reduction seen in the epochs so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.engine.compile import Compiled
from midstream.task.report import TaskReport

_BEGIN_AT = 2.0
_END_AT = 1.4
"""Rows for each row left. Aggregating costs Spark about a third of what a row costs on its way into the state task, so
it pays from a reduction of 1.5 on; the gap between the two bounds keeps a step from flapping."""


_WORTH_PLANNING = 20_000
"""Rows an epoch below which planning the aggregation costs more than it saves."""


@dataclass
class PreAggregation:
    """Remembers per step whether its rows are aggregated before the exchange."""

    compiled: Compiled
    grouped: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for id_, keyed in self.compiled.keyed.items():
            if keyed.aggregates is not None:
                self.grouped[id_] = False

    def observe(self, reports: Mapping[str, list[TaskReport]]) -> None:
        for id_, keyed in self.compiled.keyed.items():
            if keyed.aggregates is None or not keyed.aggregates.supports_grouped:
                continue
            of_step = reports.get(id_, [])
            rows = sum(report.rows for report in of_step)
            left = sum(report.arrived if self.grouped[id_] else report.groups for report in of_step)
            if left:
                bound = _END_AT if self.grouped[id_] else _BEGIN_AT
                self.grouped[id_] = rows >= _WORTH_PLANNING and rows / left >= bound
