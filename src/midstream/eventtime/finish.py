"""Results of rows that were kept until their window was over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from midstream.aggregates.function import AggregateFunction
from midstream.state.tables import Found, FoundRows, Groups, Hashes, Snapshot, TableDelta, TableSpec
from midstream.task.windowfn import WindowFunction

ROWS = "rows"
"""The table of the rows that are kept."""


class Finisher(Protocol):
    """Makes results of the rows of windows."""

    @property
    def output(self) -> pa.Schema: ...

    def of(self, rows: pa.Table, windows: Groups) -> pa.Table:
        """The results of windows, each a group of rows. The keys of the groups are those of the windows."""
        ...


@dataclass(frozen=True)
class Aggregated:
    """A row for each window."""

    aggregate: AggregateFunction

    @property
    def output(self) -> pa.Schema:
        return self.aggregate.output

    def of(self, rows: pa.Table, windows: Groups) -> pa.Table:
        nothing: Snapshot = Nothing(self.aggregate.tables)
        columns, _ = self.aggregate.update(rows, windows, nothing)
        return self.aggregate.finished(windows.keys, columns)


@dataclass(frozen=True)
class Applied:
    """Whatever a function of the user's own makes of them."""

    function: WindowFunction

    @property
    def output(self) -> pa.Schema:
        return self.function.output

    def of(self, rows: pa.Table, windows: Groups) -> pa.Table:
        ordered = rows.take(pa.array(windows.order))
        given = windows.keys.take(pa.array(np.repeat(np.arange(len(windows)), windows.sizes)))
        for name in ordered.column_names:
            if name not in given.column_names:
                given = given.append_column(ordered.schema.field(name), ordered.column(name))
        return self.function(given)


@dataclass(frozen=True)
class Nothing:
    """A snapshot of tables without rows."""

    tables: tuple[TableSpec, ...]

    def _values(self, table: str) -> pa.Schema:
        return next(spec.values for spec in self.tables if spec.name == table)

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> Found:
        values = self._values(table)
        nulls = pa.table([pa.nulls(len(hashes), field.type) for field in values], schema=values)
        return Found(np.zeros(len(hashes), np.bool_), nulls)

    def lookup_rows(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        return FoundRows(np.empty(0, np.int64), self._values(table).empty_table())

    def scan(self, table: str, overlay: TableDelta | None = None) -> Iterator[pa.Table]:
        yield from ()

    def scan_hashed(self, table: str, overlay: TableDelta | None = None) -> Iterator[tuple[Hashes, pa.Table]]:
        yield from ()
