"""Collected values: a list table that is appended to, and read whole only for the keys that are put out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, Lane, conform
from midstream.aggregates.partial import Batch, Partial, Updated
from midstream.aggregates.shipment import Shipped
from midstream.state.hashspace import subkey_hashes
from midstream.state.keys import group_rows
from midstream.state.matching import match_groups
from midstream.state.tables import FoundRows, Positions, Snapshot, TableDelta, TableSpec


@dataclass(frozen=True)
class Collected(Partial):
    """All values of a key that are not null in order of arrival, or with a `hash` of them the distinct ones.

    `table` has one value column. `name` is the column of finished lists; in complete mode a scan makes them.
    """

    name: str
    table: TableSpec
    value: Shipped
    hash: Shipped | None
    complete_mode: bool

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return ()

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table,)

    @property
    def _element(self) -> pa.Field:
        return self.table.values.field(0)

    def update(self, batch: Batch, old: Columns) -> Updated:
        runs, groups = batch.runs.where(batch.rows_with(self.value)), batch.groups
        before: FoundRows | None = None
        if self.hash is not None or not self.complete_mode:
            before = batch.snapshot.lookup_rows(self.table.name, groups.hashes, groups.keys)
        rows, owners = runs.order, runs.row_owners
        values = batch.column(self.value, self._element.type).take(pa.array(rows))
        if self.hash is not None and before is not None:
            value_hash = Lane.of(batch.column(self.hash, pa.int64())).values[rows]
            fresh = self._fresh(subkey_hashes(groups.hashes[owners], value_hash), owners, values, before)
            owners, values = owners[fresh], values.take(pa.array(fresh))
        delta = TableDelta(
            groups.hashes[owners],
            groups.keys.take(pa.array(owners)),
            pa.table([values], schema=self.table.values),
            added=len(owners),
        )
        deltas = {self.table.name: delta}
        if before is None or self.complete_mode:
            return Updated({}, deltas)
        old_values = conform(before.values.column(0), self._element.type)
        all_owners = np.concatenate([before.owner, owners])
        lists = _lists(all_owners, pa.concat_arrays([old_values, values]), len(groups))
        return Updated({self.name: lists}, deltas)

    def _fresh(self, hashes: Positions, owners: Positions, values: pa.Array, before: FoundRows) -> Positions:
        """Which rows bring a value their group does not have, in order of arrival."""
        names = ["owner", "value"]
        distinct = group_rows(hashes, pa.table([owners, values], names=names))
        had = pa.table([before.owner, conform(before.values.column(0), self._element.type)], names=names)
        new = match_groups(had, distinct.keys) < 0
        return np.sort(distinct.order[distinct.starts[new]])

    def complete(self, keys: pa.Table, snapshot: Snapshot, deltas: dict[str, TableDelta]) -> Columns:
        pieces = [*snapshot.scan(self.table.name, deltas.get(self.table.name))]
        everything = pa.concat_tables([self.table.schema.empty_table(), *pieces])
        owners = match_groups(keys, everything.select(self.table.keys.names))
        values = conform(everything.column(self._element.name), self._element.type)
        return {self.name: _lists(owners, values, keys.num_rows)}


def _lists(owners: Positions, values: pa.Array, groups: int) -> pa.Array:
    """The values of each group as a list, in the order they stand in."""
    offsets = np.zeros(groups + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=groups), out=offsets[1:])
    ordered = values.take(pa.array(np.argsort(owners, kind="stable")))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ordered)
