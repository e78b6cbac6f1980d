"""The work of an aggregate step on one partition: partial rows and old state in, new state and rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, conform
from midstream.aggregates.finish import Finish
from midstream.aggregates.folds import Folded
from midstream.aggregates.lists import Collected
from midstream.aggregates.partial import Batch, Partial
from midstream.state.tables import Groups, Hashes, KeyedResult, Positions, Snapshot, TableDelta, TableSpec

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
    range_column: str | None = None
    """Of the key: that by which old rows are deleted in bulk."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        tables = (self._main, *(table for partial in self.partials for table in partial.tables))
        return tuple(replace(table, range_column=self.range_column) for table in tables)

    @property
    def is_all_ours(self) -> bool:
        """Whether no function of a user is part of it."""
        return not any(isinstance(partial, Folded) for partial in self.partials)

    @property
    def _main(self) -> TableSpec:
        state = [field for partial in self.partials for field in partial.state]
        return TableSpec(MAIN, self.keys, pa.schema(state))

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        columns, deltas = self.update(rows, groups, snapshot)
        if self.complete:
            return KeyedResult(pa.concat_tables(self.everything(snapshot, deltas)), deltas)
        return KeyedResult(self.finished(groups.keys, columns), deltas)

    def update(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> tuple[Columns, dict[str, TableDelta]]:
        """The state of the keys of these rows with them, and what is to be written of it."""
        if not len(groups):
            return {}, {}
        # Infinities and NaN flow through sums as they do in Spark, without numpy's warnings.
        with np.errstate(invalid="ignore", over="ignore"):
            return self._update(rows, groups, snapshot)

    def _update(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> tuple[Columns, dict[str, TableDelta]]:
        batch, main = Batch(rows, groups, snapshot), self._main
        before = snapshot.lookup(MAIN, groups.hashes, groups.keys)
        old = state_columns(before.values, main.values)
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

    def before(self, groups: Groups, snapshot: Snapshot) -> tuple[Positions, pa.Table]:
        """Which of these keys have a state, and their results by it."""
        found = snapshot.lookup(MAIN, groups.hashes, groups.keys)
        known = np.flatnonzero(found.found)
        keys = groups.keys.take(pa.array(known))
        columns = state_columns(found.values.take(pa.array(known)), self._main.values)
        for partial in self.partials:
            columns |= partial.complete(keys, snapshot, {})
        return known, self.finished(keys, columns)

    def everything(
        self,
        snapshot: Snapshot,
        deltas: dict[str, TableDelta],
        wanted: Callable[[pa.Table], pa.Table] = lambda rows: rows,
        apart: Hashes | None = None,
    ) -> Iterator[pa.Table]:
        """The results of all keys, or of those whose rows of state are `wanted`, in bounded pieces. Rows at the hashes
        `apart` are left out."""
        yield self.output.empty_table()
        pieces = (wanted(piece) for piece in _scan(snapshot, deltas.get(MAIN), apart))
        if any(isinstance(partial, Collected) for partial in self.partials):
            # Lists are joined to keys from a scan of their own, so all keys must be there at once.
            pieces = (whole for whole in [pa.concat_tables([self._main.schema.empty_table(), *pieces])])
        for piece in pieces:
            keys = piece.select(self.keys.names)
            columns = state_columns(piece, self._main.values)
            for partial in self.partials:
                columns |= partial.complete(keys, snapshot, deltas)
            yield self.finished(keys, columns)

    def finished(self, keys: pa.Table, columns: Columns) -> pa.Table:
        """The results of keys, made of their state."""
        if not keys.num_rows:
            return self.output.empty_table()
        with np.errstate(invalid="ignore", over="ignore"):
            return self._finished(keys, columns)

    def _finished(self, keys: pa.Table, columns: Columns) -> pa.Table:
        arrays = [*keys.columns, *(finish.array(columns) for finish in self.finishes)]
        return pa.table(
            [conform(array, field.type) for array, field in zip(arrays, self.output, strict=True)],
            schema=self.output,
        )


def _scan(snapshot: Snapshot, overlay: TableDelta | None, apart: Hashes | None) -> Iterator[pa.Table]:
    if apart is None or not len(apart):
        yield from snapshot.scan(MAIN, overlay)
        return
    for hashes, rows in snapshot.scan_hashed(MAIN, overlay):
        yield rows.filter(pa.array(~np.isin(hashes, apart)))


def state_columns(table: pa.Table, schema: pa.Schema) -> Columns:
    return {field.name: conform(table.column(field.name), field.type) for field in schema}
