"""Exact counts of distinct values: a table with a row for every value seen, looked up, never read whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, Lane, conform
from midstream.aggregates.counts import added_up
from midstream.aggregates.partial import Batch, Partial, Updated
from midstream.aggregates.runs import Runs
from midstream.aggregates.shipment import Shipped
from midstream.state.hashspace import subkey_hashes
from midstream.state.keys import group_rows
from midstream.state.tables import TableDelta, TableSpec

_OWNER = "__owner"


@dataclass(frozen=True)
class DistinctCount(Partial):
    """The number of distinct values of one or several columns; a row with a null among them does not count.

    `table` is keyed by the step's key and the values. `hash` is Spark's hash of the values; together with the
    hash of the key it places a row near its group and finds it by binary search.
    """

    name: str
    table: TableSpec
    values: tuple[Shipped, ...]
    hash: Shipped
    mergeable = True
    """As long as no value is in two parts: rows are divided by their values."""

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, pa.int64()),)

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table,)

    def merged(self, parts: Columns, runs: Runs) -> Columns:
        return added_up(self.name, parts, runs)

    def update(self, batch: Batch, old: Columns) -> Updated:
        runs, groups = batch.runs.where(batch.rows_with(*self.values)), batch.groups
        rows, owners = runs.order, runs.row_owners
        fields = list(self.table.keys)[-len(self.values) :]
        values = [
            batch.column(shipped, field.type).take(pa.array(rows))
            for shipped, field in zip(self.values, fields, strict=True)
        ]
        value_hash = Lane.of(batch.column(self.hash, pa.int64())).values[rows]
        seen = group_rows(
            subkey_hashes(groups.hashes[owners], value_hash),
            pa.table([owners, *values], names=[_OWNER, *(field.name for field in fields)]),
        )
        owner = seen.keys.column(_OWNER).to_numpy()
        key = groups.keys.take(pa.array(owner))
        columns = [*key.columns, *seen.keys.drop_columns([_OWNER]).columns]
        keys = pa.table(
            [conform(column, field.type) for column, field in zip(columns, self.table.keys, strict=True)],
            schema=self.table.keys,
        )
        fresh = ~batch.snapshot.lookup(self.table.name, seen.hashes, keys).found
        added = np.bincount(owner[fresh], minlength=len(groups))
        total = added + Lane.of(old[self.name]).filled(0)
        fresh_keys = keys.filter(pa.array(fresh))
        delta = TableDelta(seen.hashes[fresh], fresh_keys, fresh_keys.select([]), added=int(np.count_nonzero(fresh)))
        return Updated({self.name: Lane(total).array(pa.int64())}, {self.table.name: delta})
