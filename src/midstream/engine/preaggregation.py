"""Whether to aggregate before the exchange: decided step by step, from the epochs so far.

It pays when few rows are left by it, and when one key has so many that the instance it belongs to becomes the slowest:
then the tasks before the exchange each make a partial state of their part of that key, and its instance merges those
few. No cut of ranges could divide one key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from midstream.engine.compile import Compiled, CompiledKeyed
from midstream.state.heat import HOT_SHARE
from midstream.task.report import TaskReport

_BEGIN_AT = 2.0
_END_AT = 1.4
"""Rows for each row left. Aggregating costs Spark about a third of what a row costs on its way into the state task, so
it pays from a reduction of 1.5 on; the gap between the two bounds keeps a step from flapping."""

_COOL_AT = 1.05
"""Rows for each row left at which a hot step has no hot key any more. Aggregated, the bins no longer show it."""

_WORTH_PLANNING = 20_000
"""Rows an epoch below which planning the aggregation costs more than it saves."""


@dataclass
class PreAggregation:
    """Remembers per step whether its rows are aggregated before the exchange."""

    compiled: Compiled
    grouped: dict[str, bool] = field(default_factory=dict)
    _hot: set[str] = field(default_factory=set)
    _split: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for id_, keyed in self.compiled.keyed.items():
            if keyed.aggregates is not None:
                # In the first epoch nothing is known. Aggregating in vain costs it a third more; not aggregating what
                # could be costs it several times as much.
                self.grouped[id_] = keyed.aggregates.supports_grouped

    def take_over(self, before: PreAggregation) -> None:
        """Go on with what the version before has found out about steps that aggregate the same. Trying the other way in
        the first epoch of a change would have every executor compile it, only to give it up in the next."""
        for id_, keyed in self.compiled.keyed.items():
            known = before.compiled.keyed.get(id_)
            if id_ in self.grouped and id_ in before.grouped and known is not None and _alike(keyed, known):
                self.grouped[id_] = before.grouped[id_]
                if id_ in before._hot:
                    self._hot.add(id_)

    def begin(self, split: Set[str]) -> None:
        """Before an epoch: which steps have keys in parts. What goes to which part is told by the task that has
        aggregated it, so that these are always aggregated if they can be."""
        self._split = set(split)
        self.grouped |= {id_: True for id_ in split if self._can(id_)}

    def _can(self, id_: str) -> bool:
        plan = self.compiled.keyed[id_].aggregates
        return plan is not None and plan.supports_grouped

    def observe(self, reports: Mapping[str, list[TaskReport]]) -> None:
        for id_ in self.compiled.keyed:
            if not self._can(id_) or id_ in self._split:
                continue
            of_step = reports.get(id_, [])
            rows = sum(report.rows for report in of_step)
            left = sum(report.arrived if self.grouped[id_] else report.groups for report in of_step)
            if left:
                self.grouped[id_] = rows >= _WORTH_PLANNING and rows / left >= self._bound(id_, of_step)

    def _bound(self, step: str, reports: Sequence[TaskReport]) -> float:
        """The reduction from which on it pays, or goes on to pay."""
        if not self.grouped[step]:
            self._hot.discard(step)
            if hottest_share(reports) * len(reports) > HOT_SHARE and len(reports) > 1:
                self._hot.add(step)
        if step in self._hot:
            return _COOL_AT
        return _END_AT if self.grouped[step] else _BEGIN_AT


def _alike(one: CompiledKeyed, other: CompiledKeyed) -> bool:
    if one.aggregates is None or other.aggregates is None:
        return False
    return (one.keys, one.aggregates.grouped_sql) == (other.keys, other.aggregates.grouped_sql)


def hottest_share(reports: Sequence[TaskReport]) -> float:
    """The share of all rows that the busiest bin of the hash space has."""
    counts = [np.frombuffer(report.heat[1], np.uint32) for report in reports if report.heat is not None]
    total = sum(int(bins.sum()) for bins in counts)
    return max((int(bins.max()) for bins in counts if len(bins)), default=0) / total if total else 0.0
