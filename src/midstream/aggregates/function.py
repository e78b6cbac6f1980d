"""The work of an aggregate step on one partition: partial rows and old state in, new state and rows out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, conform
from midstream.aggregates.finish import Finish
from midstream.aggregates.lists import Collected
from midstream.aggregates.partial import Batch, Partial
from midstream.state.tables import Groups, KeyedResult, Snapshot, TableDelta, TableSpec

MAIN = "main"
"""The table with one row per key: the state of all partials, except what they keep in tables of their own."""


@dataclass(frozen=True)
class AggregateFunction:
    """A keyed function made of partials, which keep state, and finishes, which make results of it."""

    keys: pa.Schema
    partials: tuple[Partial, ...]
    finishes: tuple[Finish, ...]
    output: pa.Schema
    complete: bool

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (self._main, *(table for partial in self.partials for table in partial.tables))

    @property
    def _main(self) -> TableSpec:
        state = [field for partial in self.partials for field in partial.state]
        return TableSpec(MAIN, self.keys, pa.schema(state))

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        # Infinities and NaN flow through sums as they do in Spark, without numpy's warnings.
        with np.errstate(invalid="ignore", over="ignore"):
            columns, deltas = self._update(rows, groups, snapshot) if len(groups) else ({}, {})
            if self.complete:
                return KeyedResult(pa.concat_tables(self._everything(snapshot, deltas)), deltas)
            if not len(groups):
                return KeyedResult(self.output.empty_table(), deltas)
            return KeyedResult(self._finished(groups.keys, columns), deltas)

    def _update(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> tuple[Columns, dict[str, TableDelta]]:
        batch, main = Batch(rows, groups, snapshot), self._main
        before = snapshot.lookup(MAIN, groups.hashes, groups.keys)
        old = _columns(before.values, main.values)
        columns: Columns = {}
        deltas: dict[str, TableDelta] = {}
        for partial in self.partials:
            updated = partial.update(batch, old)
            columns |= updated.columns
            deltas |= updated.deltas
        state = pa.table([columns[name] for name in main.values.names], schema=main.values)
        if not main.values.names:
            state = groups.keys.select([])  # a table without columns that still has its rows
        fresh = len(groups) - int(np.count_nonzero(before.found))
        deltas[MAIN] = TableDelta(groups.hashes, groups.keys, state, added=fresh)
        return columns, deltas

    def _everything(self, snapshot: Snapshot, deltas: dict[str, TableDelta]) -> Iterator[pa.Table]:
        yield self.output.empty_table()
        pieces = snapshot.scan(MAIN, deltas.get(MAIN))
        if any(isinstance(partial, Collected) for partial in self.partials):
            # Lists are joined to keys from a scan of their own, so all keys must be there at once.
            pieces = iter([pa.concat_tables([self._main.schema.empty_table(), *pieces])])
        for piece in pieces:
            keys = piece.select(self.keys.names)
            columns = _columns(piece, self._main.values)
            for partial in self.partials:
                columns |= partial.complete(keys, snapshot, deltas)
            yield self._finished(keys, columns)

    def _finished(self, keys: pa.Table, columns: Columns) -> pa.Table:
        arrays = [*keys.columns, *(finish.array(columns) for finish in self.finishes)]
        return pa.table(
            [conform(array, field.type) for array, field in zip(arrays, self.output, strict=True)],
            schema=self.output,
        )


def _columns(table: pa.Table, schema: pa.Schema) -> Columns:
    return {field.name: conform(table.column(field.name), field.type) for field in schema}
