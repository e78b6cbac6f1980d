"""What a keyed step keeps: named tables of rows by key, their snapshot at an epoch and the changes to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from midstream.state.hashspace import HashRange
    from midstream.state.splits import Split

Hashes: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Positions: TypeAlias = npt.NDArray[np.int64]


class TableKind(StrEnum):
    """How many rows a key may have."""

    VALUE = "value"
    LIST = "list"


@dataclass(frozen=True)
class TableSpec:
    """One named table of a keyed step: the columns of its key and of its values.

    `range_column` names the column (of key or values) by which old rows are deleted in bulk, such as a window's end.
    """

    name: str
    keys: pa.Schema
    values: pa.Schema
    kind: TableKind = TableKind.VALUE
    range_column: str | None = None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.keys, *self.values])


@dataclass(frozen=True)
class Groups:
    """The rows of an epoch grouped by key: group i owns `order[starts[i]:starts[i + 1]]`, in order of arrival.

    Groups are sorted by hash. Two keys with one hash are two groups side by side. A null key is a group like any other.
    """

    hashes: Hashes
    keys: pa.Table
    order: Positions
    starts: Positions

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def sizes(self) -> Positions:
        return np.diff(self.starts, append=len(self.order))


@dataclass(frozen=True)
class Found:
    """The answer to a look-up of keys: which of them exist, and for every asked key its values (null when absent)."""

    found: Mask
    values: pa.Table


@dataclass(frozen=True)
class FoundRows:
    """The answer to a look-up in a list table: all rows, each with the position of the key it belongs to.

    Rows stand by key in the order asked, and for one key oldest first.
    """

    owner: Positions
    values: pa.Table


@dataclass(frozen=True)
class TableDelta:
    """Rows an epoch writes to a table, sorted by hash.

    Value tables: a row replaces the row of its key; a row marked deleted removes it.
    List tables: a row is appended; a row marked deleted removes all *older* rows of its key (not those of this delta).
    `added` and `removed` are the net change in live rows, which keeps the count exact without a scan.
    `delete_below` deletes by range, in all partitions: rows whose range column (times as integers) is lower are gone.
    """

    hashes: Hashes
    keys: pa.Table
    values: pa.Table
    deleted: Mask | None = None
    added: int = 0
    removed: int = 0
    delete_below: int | float | str | None = None


def nothing_of(table: TableSpec) -> TableDelta:
    """A delta that writes no rows."""
    return TableDelta(np.empty(0, np.int64), table.keys.empty_table(), table.values.empty_table())


class Snapshot(Protocol):
    """The state of one partition of a keyed step as of the epoch before: immutable, read on demand."""

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> Found:
        """Values of distinct keys of a value table. Hashes ascend."""
        ...

    def lookup_rows(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        """All rows of distinct keys of a list table. Hashes ascend."""
        ...

    def scan(self, table: str, overlay: TableDelta | None = None) -> Iterator[pa.Table]:
        """Every live row (keys, then values) of the partition in bounded pieces, as if `overlay` were applied."""
        ...

    def scan_hashed(self, table: str, overlay: TableDelta | None = None) -> Iterator[tuple[Hashes, pa.Table]]:
        """The same with the hash of each row. Pieces follow each other by hash."""
        ...


class WideSnapshot(Snapshot, Protocol):
    """A snapshot that can be asked about other partitions, too."""

    def keys_at(self, table: str, hashes: Hashes) -> tuple[Hashes, pa.Table]:
        """Every key a table has or had at these hashes, which ascend, once for each hash it is at."""
        ...

    def within(self, range: HashRange) -> WideSnapshot:
        """The same state, to be scanned for another range."""
        ...


@dataclass(frozen=True)
class KeyedResult:
    """What a keyed function gives back for an epoch: its output rows and the changes to its tables.

    One with event time also tells which of its rows came too late, and when the next thing in its state is due.
    """

    output: pa.Table
    deltas: dict[str, TableDelta] = field(default_factory=dict)
    late: Positions | None = None
    due: int | None = None
    touched: tuple[int, ...] = ()
    """Hashes of keys in parts that got rows: their results are still to be given."""
    splits: tuple[Split, ...] | None = None
    """Of the partition's own keys, which are in parts from now on; None when nothing changes about that."""


@dataclass(frozen=True)
class Times:
    """Event time of a step in an epoch, in microseconds since 1970: its watermark before, which says what is late, and
    its watermark now, up to which things are done when it is `firing`. None is before all times."""

    before: int | None
    now: int | None
    firing: bool


class KeyedFunction(Protocol):
    """The work of a keyed step on one partition: pure and picklable, so that any attempt anywhere gives the same."""

    @property
    def tables(self) -> tuple[TableSpec, ...]: ...

    @property
    def output(self) -> pa.Schema: ...

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        """Process the rows of an epoch. Called with no rows too: *complete* output is due all the same."""
        ...


@runtime_checkable
class TimedFunction(Protocol):
    """The work of a keyed step that goes by event time."""

    @property
    def tables(self) -> tuple[TableSpec, ...]: ...

    @property
    def output(self) -> pa.Schema: ...

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        """Process the rows of an epoch, and do what is due when it is firing. Called with no rows too."""
        ...


@runtime_checkable
class JoiningFunction(Protocol):
    """The work of a keyed step in a round without rows, on what all partitions have made of theirs."""

    @property
    def tables(self) -> tuple[TableSpec, ...]: ...

    @property
    def output(self) -> pa.Schema: ...

    def run_within(self, mine: HashRange, snapshot: WideSnapshot) -> KeyedResult:
        """Do what is to be done in a partition, whose range is given."""
        ...
