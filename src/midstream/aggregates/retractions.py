"""Results that take back what they replace: the row as it was, marked `-`, before the row as it is, marked `+`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.aggregates.function import AggregateFunction
from midstream.state.tables import Groups, KeyedResult, Snapshot, TableSpec

CHANGE = "change"
TAKEN_BACK, GIVEN = "-", "+"


@dataclass(frozen=True)
class RetractingAggregate:
    """An aggregate by key that gives, for every key an epoch changes, the result before and the result now."""

    aggregate: AggregateFunction

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return self.aggregate.tables

    @property
    def output(self) -> pa.Schema:
        return with_change(self.aggregate.output)

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        columns, deltas = self.aggregate.update(rows, groups, snapshot)
        now = self.aggregate.finished(groups.keys, columns)
        return KeyedResult(changes(self.aggregate, groups, snapshot, now), deltas)


def with_change(output: pa.Schema) -> pa.Schema:
    return output.append(pa.field(CHANGE, pa.string(), nullable=False))


def changes(aggregate: AggregateFunction, groups: Groups, snapshot: Snapshot, now: pa.Table) -> pa.Table:
    """The results of some keys before, marked as taken back, and now. What has not changed is left out."""
    known, before = aggregate.before(groups, snapshot)
    kept = np.ones(now.num_rows, np.bool_)
    same = _same(before, now.take(pa.array(known)))
    kept[known[same]] = False
    gone, given = before.filter(pa.array(~same)), now.filter(pa.array(kept))
    marks = pa.array([TAKEN_BACK] * gone.num_rows + [GIVEN] * given.num_rows, pa.string())
    rows = pa.concat_tables([gone, given])
    return pa.table([*rows.columns, marks], schema=with_change(rows.schema))


def _same(one: pa.Table, other: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows are the same in both. Values that cannot be compared fast count as changed."""
    same = np.ones(one.num_rows, np.bool_)
    for left, right in zip(one.columns, other.columns, strict=True):
        if pa.types.is_nested(left.type):
            return np.zeros(one.num_rows, np.bool_)
        same &= np.asarray(_equal(left, right))
    return same


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both, pc.fill_null(pc.equal(left, right), False))
