"""The best rows of each key, by the order of some columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.state.keys import flatten
from midstream.state.rewrites import rewritten
from midstream.state.tables import Groups, KeyedResult, Positions, Snapshot, TableKind, TableSpec

ROWS, RANK = "rows", "rank"
_OWNER, _AGE = "__owner", "__age"


@dataclass(frozen=True)
class Top:
    """Keeps the first `n` rows of a key. Of rows that are equal in the order, the one that came first is first.

    An epoch gives all of the first rows of every key for which they have changed, with their rank from 1 on.
    """

    keys: pa.Schema
    values: pa.Schema
    n: int
    order: tuple[tuple[str, str], ...]
    """Columns, each `ascending` or `descending`. Nulls come last."""
    ranked: bool

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(ROWS, self.keys, self.values, TableKind.LIST),)

    @property
    def output(self) -> pa.Schema:
        rank = [pa.field(RANK, pa.int64(), nullable=False)] if self.ranked else []
        return pa.schema([*self.keys, *rank, *self.values])

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        if not len(groups):
            return KeyedResult(self.output.empty_table())
        before = snapshot.lookup_rows(ROWS, groups.hashes, groups.keys)
        old = len(before.owner)
        fresh = rows.take(pa.array(groups.order)).select(self.values.names).cast(self.values)
        values = flatten(pa.concat_tables([before.values.cast(self.values), fresh]))
        owner = np.concatenate([before.owner, np.repeat(np.arange(len(groups)), groups.sizes)])
        ordered = self._ordered(owner, values)
        rank = _ranks(owner[ordered])
        best = ordered[rank <= self.n]
        changed = np.unique(owner[best[best >= old]])
        kept = best[np.isin(owner[best], changed)]
        ranks = rank[rank <= self.n][np.isin(owner[best], changed)]
        best_rows = values.take(pa.array(kept))
        # What keys had goes where they have something else now.
        had, gone = changed[np.isin(changed, before.owner)], int(np.count_nonzero(np.isin(before.owner, changed)))
        delta = rewritten(groups, had, owner[kept], best_rows, gone)
        return KeyedResult(self._rows(groups, owner[kept], ranks, best_rows), {ROWS: delta})

    def _ordered(self, owner: Positions, values: pa.Table) -> Positions:
        """Rows by key, then best first."""
        columns: Sequence[pa.Array] = [pa.array(owner), *(values.column(name) for name, _ in self.order)]
        names = [_OWNER, *(f"__{number}" for number in range(len(self.order))), _AGE]
        table = pa.table([*columns, pa.array(np.arange(len(owner)))], names=names)
        directions = ["ascending", *(direction for _, direction in self.order), "ascending"]
        keys = [(name, direction, "at_end") for name, direction in zip(names, directions, strict=True)]
        return np.asarray(pc.sort_indices(table, sort_keys=keys), np.int64)

    def _rows(self, groups: Groups, owner: Positions, ranks: Positions, values: pa.Table) -> pa.Table:
        rank = [pa.array(ranks)] if self.ranked else []
        return pa.table([*groups.keys.take(pa.array(owner)).columns, *rank, *values.columns], schema=self.output)


def _ranks(owners: Positions) -> Positions:
    """From 1 on within each run of equal owners."""
    first = np.ones(len(owners), np.bool_)
    first[1:] = owners[1:] != owners[:-1]
    begins = np.flatnonzero(first)
    sizes = np.diff(begins, append=len(owners))
    return np.arange(len(owners), dtype=np.int64) - np.repeat(begins, sizes) + 1
