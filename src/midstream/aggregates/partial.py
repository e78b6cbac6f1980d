"""What the parts of an aggregate have in common: rows of an epoch go in, state and columns come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from midstream.aggregates.arrays import Columns, conform
from midstream.aggregates.runs import Runs
from midstream.aggregates.shipment import Shipped
from midstream.state.tables import Groups, Mask, Snapshot, TableDelta, TableSpec

ROWS = "__rows"
"""How many rows a partial row stands for. Only grouped partials carry it, which tells the two modes apart."""


@dataclass(frozen=True)
class Batch:
    """The partial rows of an epoch, grouped by key, and the state they meet."""

    rows: pa.Table
    groups: Groups
    snapshot: Snapshot

    @cached_property
    def grouped(self) -> bool:
        return ROWS in self.rows.column_names

    @cached_property
    def runs(self) -> Runs:
        return Runs.of(self.groups)

    def column(self, shipped: Shipped, type_: pa.DataType) -> pa.Array:
        return conform(self._column(shipped), type_)

    def rows_with(self, *columns: Shipped) -> Mask | None:
        """The rows in which none of the columns is null; None when that is all rows."""
        counted: Mask | None = None
        for column in map(self._column, columns):
            if column.null_count:
                valid = column.is_valid().to_numpy()
                counted = valid if counted is None else counted & valid
        return counted

    def _column(self, shipped: Shipped) -> pa.ChunkedArray:
        return self.rows.column(shipped.grouped if self.grouped else shipped.per_row)

    def key(self, group: int) -> tuple[object, ...]:
        """The key of a group, for messages."""
        return tuple(self.groups.keys.slice(group, 1).to_pylist()[0].values())


@dataclass(frozen=True)
class Updated:
    """What a partial makes of an epoch: a value per group of every column, changes to tables of its own."""

    columns: Columns
    deltas: dict[str, TableDelta] = field(default_factory=dict)


class Partial(ABC):
    """A mergeable part of one or more aggregates.

    Its state lives in columns of the step's main table, where null says that no row has counted so far: a key
    not seen before and a column that a change of the pipeline added look the same, and need no care.
    """

    @property
    @abstractmethod
    def state(self) -> tuple[pa.Field, ...]:
        """The columns it keeps in the main table."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Tables it keeps beside the main one."""
        return ()

    mergeable: ClassVar[bool] = False
    """Whether the states of a key's rows, however they were divided, make up the state of all of them."""

    def merged(self, parts: Columns, runs: Runs) -> Columns:
        """The state columns of keys, made of those of their parts: a run for each key."""
        raise NotImplementedError(f"{type(self).__name__} is not mergeable")

    @abstractmethod
    def update(self, batch: Batch, old: Columns) -> Updated:
        """Merge the rows of an epoch into the state columns `old`, which have one value per group."""

    def complete(self, keys: pa.Table, snapshot: Snapshot, deltas: dict[str, TableDelta]) -> Columns:
        """Columns for *every* key that are not in the main table, as they are once `deltas` are applied."""
        return {}
