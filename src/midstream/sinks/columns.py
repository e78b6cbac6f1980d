"""What several sinks ask about columns, types and keys."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import SinkError
from midstream.sinks.base import SinkContext


def require_distinct(schema: pa.Schema, *, ignore_case: bool) -> None:
    """Every column has its own name; Spark and Delta hold `a` and `A` for the same."""
    counts = Counter(name.lower() if ignore_case else name for name in schema.names)
    repeated = [name for name in schema.names if counts[name.lower() if ignore_case else name] > 1]
    if repeated:
        raise SinkError.duplicate_columns(repeated)


def upsert_keys(given: tuple[str, ...] | None, context: SinkContext) -> tuple[str, ...]:
    """The key columns of an upsert: those given, or those of the keyed step before the sink."""
    keys = given if given is not None else context.keys
    if not keys:
        raise SinkError.no_keys(context.sink_id)
    unknown = [key for key in keys if key not in context.schema.names]
    if unknown:
        raise SinkError.unknown_keys(context.sink_id, unknown, context.schema.names)
    return keys


def relaxed(kind: pa.DataType) -> pa.DataType:
    """The type as a table keeps it: timestamps in UTC, everything nullable (Spark's plans change nullability).

    >>> relaxed(pa.list_(pa.field("element", pa.timestamp("us", "Europe/Rome"), nullable=False)))
    ListType(list<element: timestamp[us, tz=UTC]>)
    """
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_map(kind):
        return pa.map_(
            pa.field("key", relaxed(kind.key_type), nullable=False),
            pa.field("value", relaxed(kind.item_type)),
        )
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", relaxed(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("element", relaxed(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, relaxed(field.type)) for field in kind])
    return kind


def relaxed_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, relaxed(field.type)) for field in schema])


def last_of_each_key(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The rows without those that a later one with the same key replaces; null is a key like any other.

    >>> last_of_each_key(pa.table({"k": ["a", None, "a"], "n": [1, 2, 3]}), ("k",)).to_pydict()
    {'k': [None, 'a'], 'n': [2, 3]}
    """
    columns = {str(i): _comparable(rows[key]) for i, key in enumerate(keys)}
    numbered = pa.table({**columns, "row": pa.array(range(rows.num_rows), pa.int64())})
    last = numbered.group_by(list(columns)).aggregate([("row", "max")])["row_max"]
    if len(last) == rows.num_rows:
        return rows
    return rows.take(pc.take(last, pc.array_sort_indices(last.combine_chunks())))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow cannot group by lists and structs; their text can stand for them."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.chunked_array([pa.array([None if row is None else repr(row) for row in column.to_pylist()], pa.string())])
