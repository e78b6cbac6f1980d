"""Deletes by range: rows whose range column lies below a bound are gone, without touching them one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.state.tables import Mask, TableKind, TableSpec


@dataclass(frozen=True)
class RangeDelete:
    """Rows whose range column lies below a bound are gone from all segments written up to an epoch."""

    below: Any
    epoch: int


def expiry_bound(deletes: tuple[RangeDelete, ...], epoch: int) -> Any | None:
    """Below which value of the range column the rows of a segment written up to an epoch are gone."""
    return max((delete.below for delete in deletes if delete.epoch >= epoch), default=None)


def expired(column: pa.ChunkedArray | pa.Array, bound: object) -> Mask:
    """Which values lie below the bound. A null never does."""
    values = to_orderable(column)
    below = pc.fill_null(pc.less(values, pa.scalar(bound, values.type)), False)
    return np.asarray(below.to_numpy() if isinstance(below, pa.ChunkedArray) else below.to_numpy(zero_copy_only=False))


def to_orderable(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """A range column as numbers that JSON can hold: times and dates become their integers."""
    if pa.types.is_temporal(column.type):
        return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column


def bounds(spec: TableSpec, rows: pa.Table) -> tuple[Any, Any]:
    """Least and greatest value of the range column, or None twice when rows cannot be judged by it."""
    if spec.range_column is None:
        return None, None
    column = rows.column(spec.range_column)
    if column.null_count or not len(column):
        return None, None  # a null never expires, so the segment can never be dropped whole
    low_high = pc.min_max(to_orderable(column)).as_py()
    return low_high["min"], low_high["max"]


def drops_freely(spec: TableSpec) -> bool:
    """Whether an expired row can vanish without uncovering an older row of its key."""
    return spec.kind is TableKind.LIST or spec.range_column in spec.keys.names
