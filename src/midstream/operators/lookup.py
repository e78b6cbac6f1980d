"""A stream with a table that changes: each row gets what the table has for its key at that moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.eventtime.sides import Side
from midstream.state.tables import Groups, KeyedResult, Positions, Snapshot, TableDelta, TableSpec

TABLE = "table"


@dataclass(frozen=True)
class Lookup:
    """Right rows replace each other by key; left rows are given with the right row of their key. In one epoch the right
    rows come first, and of several of one key the last counts."""

    left: Side
    right: Side
    output: pa.Schema
    inner: bool
    """Whether left rows without a right row are left out."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(TABLE, self.right.keys, self.right.values),)

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        if not len(groups):
            return KeyedResult(self.output.empty_table())
        known = snapshot.lookup(TABLE, groups.hashes, groups.keys)
        (left, asked), (right, given) = self.left.rows_of(rows, groups), self.right.rows_of(rows, groups)
        owners, last = _last_of_each(right)
        # Old values first, new ones behind them: each key has the place of what counts for it now.
        place = np.arange(len(groups))
        place[owners] = len(groups) + np.arange(len(owners))
        values = pa.concat_tables([known.values.cast(self.right.values), given.take(pa.array(last))])
        found = known.found.copy()
        found[owners] = True
        kept = found[left] if self.inner else np.ones(len(left), np.bool_)
        columns = [
            *groups.keys.take(pa.array(left[kept])).columns,
            *asked.filter(pa.array(kept)).columns,
            *values.take(pa.array(place[left[kept]])).columns,
        ]
        fresh = int(np.count_nonzero(~known.found[owners]))
        written = TableDelta(
            groups.hashes[owners], groups.keys.take(pa.array(owners)), given.take(pa.array(last)), added=fresh
        )
        return KeyedResult(pa.table(columns, schema=self.output), {TABLE: written} if len(owners) else {})


def _last_of_each(owners: Positions) -> tuple[Positions, Positions]:
    """The owners of rows, which ascend, each once, and the position of the last row of each."""
    if not len(owners):
        return owners, owners
    last = np.flatnonzero(np.append(owners[1:] != owners[:-1], True))
    return owners[last], last
