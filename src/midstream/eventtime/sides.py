"""Two streams in one step: rows of either side with the columns of both, those of the other side null."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from midstream.state.tables import Groups, Positions, TableKind, TableSpec

SIDE = "__side"
LEFT, RIGHT = "left", "right"
_PREFIX = {LEFT: "l_", RIGHT: "r_"}


class How(StrEnum):
    """Which rows a join gives besides pairs, or instead of them."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    """Left rows that have a partner, once."""
    ANTI = "anti"
    """Left rows that have none."""

    def keeps_alone(self, side: str) -> bool:
        """Whether rows of a side are given that have no partner."""
        return (
            self is How.FULL or (self in (How.LEFT, How.ANTI) and side == LEFT) or (self is How.RIGHT and side == RIGHT)
        )


def carried(side: str, column: str) -> str:
    """The name under which a column of a side travels to the state task."""
    return f"{_PREFIX[side]}{column}"


@dataclass(frozen=True)
class Side:
    """One side of a join: what is kept of its rows, besides the key."""

    name: str
    keys: pa.Schema
    values: pa.Schema
    range_column: str | None = None

    @property
    def table(self) -> TableSpec:
        return TableSpec(self.name, self.keys, self.values, TableKind.LIST, self.range_column)

    def rows_of(self, rows: pa.Table, groups: Groups) -> tuple[Positions, pa.Table]:
        """The new rows of this side, each with the number of its group."""
        mine = np.asarray(rows.column(SIDE))[groups.order] == (self.name == RIGHT)
        owners = np.repeat(np.arange(len(groups), dtype=np.int64), groups.sizes)[mine]
        taken = rows.take(pa.array(groups.order[mine]))
        columns = [taken.column(carried(self.name, name)) for name in self.values.names]
        if not columns:
            return owners, taken.select([])
        return owners, pa.table(columns, schema=self.values)
