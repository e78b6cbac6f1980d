"""Rows by group as runs of positions, and what numpy reduces over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Lane, Values
from midstream.state.tables import Groups, Mask, Positions


@dataclass(frozen=True)
class Runs:
    """Rows of an epoch that count, by group: run i is `order[starts[i]:starts[i + 1]]`, never empty.

    `owners[i]` is the group of run i; None says that every group has its run, in order.
    """

    order: Positions
    starts: Positions
    groups: int
    owners: Positions | None = None

    @classmethod
    def of(cls, groups: Groups) -> Runs:
        return cls(groups.order, groups.starts, len(groups))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def single(self) -> bool:
        """Whether every run is one row, so that there is nothing to reduce."""
        return len(self.order) == len(self.starts)

    @property
    def sizes(self) -> Positions:
        return np.diff(self.starts, append=len(self.order))

    @property
    def row_owners(self) -> Positions:
        """The group of every row, in the order of `order`."""
        owners = np.arange(len(self)) if self.owners is None else self.owners
        return np.repeat(owners, self.sizes)

    def where(self, rows: Mask | None) -> Runs:
        """The runs of only those rows; groups that lose all their rows lose their run."""
        if rows is None or len(self) == 0:
            return self
        kept = rows[self.order]
        sizes = np.add.reduceat(kept, self.starts, dtype=np.int64)
        filled = np.flatnonzero(sizes)
        owners = filled if self.owners is None else self.owners[filled]
        return Runs(self.order[kept], _starts(sizes[filled]), self.groups, owners)

    def reduce(self, ufunc: np.ufunc, values: Values) -> Values:
        """The values of each run reduced to one."""
        ordered = values[self.order]
        return ordered if self.single else np.asarray(ufunc.reduceat(ordered, self.starts))

    def lane(self, values: Values) -> Lane:
        """One value per run as one value per group, null for groups without a run."""
        if self.owners is None:
            return Lane(values)
        spread = np.zeros(self.groups, values.dtype)
        spread[self.owners] = values
        valid = np.zeros(self.groups, np.bool_)
        valid[self.owners] = True
        return Lane(spread, valid)

    def take(self, column: pa.Array, rows: Positions) -> pa.Array:
        """One row of the column per run as one value per group, null for groups without a run."""
        lane = self.lane(rows)
        return column.take(pa.array(lane.values, mask=None if lane.valid is None else ~lane.valid))

    @property
    def first_rows(self) -> Positions:
        return self.order[self.starts]

    @property
    def last_rows(self) -> Positions:
        return np.asarray(self.order[self.starts + self.sizes - 1])


def _starts(sizes: Positions) -> Positions:
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    return starts
