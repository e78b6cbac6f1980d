"""Keys compared for real: equality, grouping and canonical forms of key columns.

Hashes find candidates, these functions decide. Equality is SQL's `<=>`: null equals null, NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.state.tables import Groups, Hashes, Mask, Positions


def keys_equal(left: pa.Table | pa.RecordBatch, right: pa.Table | pa.RecordBatch) -> Mask:
    """Row by row, whether two tables with the same key columns hold the same key."""
    equal = np.ones(left.num_rows, dtype=np.bool_)
    for index in range(left.num_columns):
        equal &= _columns_equal(_flat(left.column(index)), _flat(right.column(index)))
    return equal


def keys_equal_at(
    left: pa.Table | pa.RecordBatch, left_rows: Positions, right: pa.Table | pa.RecordBatch, right_rows: Positions
) -> Mask:
    """Like `keys_equal` for chosen rows of two tables; whole numbers are compared without a copy as a table."""
    equal: Mask | None = None
    for index in range(left.num_columns):
        a, b = _flat(left.column(index)), _flat(right.column(index))
        if pa.types.is_integer(a.type) and a.type == b.type and not a.null_count and not b.null_count:
            same = np.asarray(a.to_numpy()[left_rows] == b.to_numpy()[right_rows])
        else:
            same = _columns_equal(a.take(pa.array(left_rows)), b.take(pa.array(right_rows)))
        equal = same if equal is None else equal & same
    return np.ones(len(left_rows), dtype=np.bool_) if equal is None else equal


def _columns_equal(left: pa.Array, right: pa.Array) -> Mask:
    if left.type != right.type:
        right = right.cast(left.type)
    if pa.types.is_nested(left.type):
        return np.fromiter(
            (a == b for a, b in zip(_canonical_values(left), _canonical_values(right), strict=True)),
            dtype=np.bool_,
            count=len(left),
        )
    if left.null_count == 0 and right.null_count == 0 and pa.types.is_integer(left.type):
        return np.asarray(left.to_numpy(zero_copy_only=False) == right.to_numpy(zero_copy_only=False))
    equal = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    both_null = pc.and_(left.is_null(), right.is_null())
    return np.asarray(pc.or_(pc.fill_null(equal, False), both_null).to_numpy(zero_copy_only=False))


def canonical_keys(keys: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Hashable Python forms of keys, equal exactly when the keys are. Slow: for the rare paths only."""
    return zip(*(_canonical_values(_flat(column)) for column in keys.columns), strict=True)


def _canonical_values(column: pa.Array) -> Iterator[Any]:
    return (canonical_value(value) for value in column.to_pylist())


def canonical_value(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0  # + 0.0 turns -0.0 into 0.0
    if isinstance(value, dict):
        return tuple(canonical_value(v) for v in value.values())
    if isinstance(value, list):
        return ("list", *(canonical_value(v) for v in value))
    return value


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def flatten(table: pa.Table) -> pa.Table:
    """The same table with one chunk a column, which gathers and comparisons are fast on."""
    return table if all(column.num_chunks == 1 for column in table.columns) else table.combine_chunks()


def group_rows(hashes: Hashes, keys: pa.Table) -> Groups:
    """Group rows by key. Within a group rows keep the order they came in."""
    order = _stable_argsort(hashes)
    ordered = hashes[order]
    same_hash = ordered[1:] == ordered[:-1]
    if not same_hash.any():
        starts = np.arange(len(ordered), dtype=np.int64)
        return Groups(ordered, keys.take(pa.array(order)), order, starts)
    repeats = np.flatnonzero(same_hash)
    order, collided = _separate_collisions(ordered, order, keys, repeats)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ~same_hash
    first[collided] = True
    starts = np.flatnonzero(first)
    return Groups(ordered[starts], keys.take(pa.array(order[starts])), order, starts)


def _stable_argsort(hashes: Hashes) -> Positions:
    """Like `argsort(kind="stable")`, several times faster on random hashes.

    The upper bits of each hash and the row's number share one integer, so that one sort of plain values does it; the
    few rows whose hashes differ only in the lower bits are put right by a second sort of an almost sorted array.
    """
    bits = max(1, (len(hashes) - 1).bit_length())
    numbers = np.int64((1 << bits) - 1)
    packed = (hashes & ~numbers) | np.arange(len(hashes), dtype=np.int64)
    packed.sort()
    order = packed & numbers
    ordered = hashes[order]
    if (ordered[1:] < ordered[:-1]).any():
        order = order[np.argsort(ordered, kind="stable")]
    return order


def _separate_collisions(
    ordered: Hashes, order: Positions, keys: pa.Table, repeats: Positions
) -> tuple[Positions, Positions]:
    """Put equal keys side by side where different keys share a hash; give the places where a new key begins there."""
    before, after = keys.take(pa.array(order[repeats])), keys.take(pa.array(order[repeats + 1]))
    equal = keys_equal(before, after)
    if equal.all():
        return order, np.empty(0, dtype=np.int64)
    order = order.copy()
    collided: list[int] = []
    for value in np.unique(ordered[repeats[~equal]]):
        low, high = np.searchsorted(ordered, value, "left"), np.searchsorted(ordered, value, "right")
        members = order[low:high]
        by_key: dict[tuple[Any, ...], list[int]] = {}
        for position, key in zip(members, canonical_keys(keys.take(pa.array(members))), strict=True):
            by_key.setdefault(key, []).append(int(position))
        order[low:high] = [position for positions in by_key.values() for position in positions]
        at = int(low)
        for positions in by_key.values():
            collided.append(at)
            at += len(positions)
    return order, np.array(collided, dtype=np.int64)
