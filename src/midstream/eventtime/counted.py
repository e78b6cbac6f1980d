"""Windows of so many rows: a key's rows are kept until there are enough of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.eventtime.finish import ROWS, Finisher
from midstream.state.keys import flatten
from midstream.state.rewrites import rewritten
from midstream.state.tables import Groups, KeyedResult, Positions, Snapshot, TableKind, TableSpec


@dataclass(frozen=True)
class CountWindows:
    """Every `n` rows of a key, in the order they come, give one result. However the stream is cut into epochs, these
    are the same rows."""

    finisher: Finisher
    keys: pa.Schema
    values: pa.Schema
    n: int

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(ROWS, self.keys, self.values, TableKind.LIST),)

    @property
    def output(self) -> pa.Schema:
        return self.finisher.output

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        if not len(groups):
            return KeyedResult(self.output.empty_table())
        old = snapshot.lookup_rows(ROWS, groups.hashes, groups.keys)
        fresh = rows.take(pa.array(groups.order)).select(self.values.names).cast(self.values)
        values = flatten(pa.concat_tables([old.values.cast(self.values), fresh]))
        owner = np.concatenate([old.owner, np.repeat(np.arange(len(groups)), groups.sizes)])
        order = np.argsort(owner, kind="stable")  # of each key first what was kept, then what came
        owner = owner[order]
        totals = np.bincount(owner, minlength=len(groups))
        number = np.arange(len(owner)) - np.repeat(np.cumsum(totals) - totals, totals)
        whole = number < (totals // self.n * self.n)[owner]
        windows = self._windows(groups, owner[whole], number[whole])
        output = self.finisher.of(values.take(pa.array(order[whole])), windows)
        # What was kept of a key is part of its first window, if there is one.
        consumed = np.flatnonzero((totals >= self.n) & (np.bincount(old.owner, minlength=len(groups)) > 0))
        left = ~whole & (order >= len(old.owner))
        removed = int(np.count_nonzero(np.isin(old.owner, consumed)))
        delta = rewritten(groups, consumed, owner[left], values.take(pa.array(order[left])), removed)
        return KeyedResult(output, {ROWS: delta})

    def _windows(self, groups: Groups, owner: Positions, number: Positions) -> Groups:
        begins = np.flatnonzero(number % self.n == 0)
        owners = owner[begins]
        keys = groups.keys.take(pa.array(owners))
        return Groups(groups.hashes[owners], keys, np.arange(len(owner), dtype=np.int64), begins)
