"""Arrow types in PostgreSQL, and Arrow batches in the text that COPY reads.

| Arrow (Spark) | column of a new table |
| --- | --- |
| bool | boolean |
| int8, int16 (tinyint, smallint) | smallint |
| int32 / int64 | integer / bigint |
| float / double | real / double precision |
| decimal(p, s) | numeric(p, s) |
| string / binary | text / bytea |
| date | date |
| timestamp with zone / without (timestamp_ntz) | timestamptz / timestamp |
| time / duration (day-time interval) | time / interval |
| list of one of the above | an array of it |
| struct, map, list of lists, structs or maps | jsonb |
| null (void) | text |

In jsonb, decimals, dates, times, binary values and floats that are no numbers are strings, and map keys are text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

_TEXT = frozenset({"text", "varchar", "bpchar"})
_JSON = frozenset({"json", "jsonb"})
_NUMERIC = frozenset({"numeric", "float8"})


def column_type(kind: pa.DataType) -> str | None:
    """The type of a column made for this Arrow type, None when there is none.

    >>> column_type(pa.list_(pa.decimal128(10, 2)))
    'numeric(10,2)[]'
    """
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if _is_list(kind):
        element = column_type(kind.value_type)
        return "jsonb" if element is None or pa.types.is_nested(kind.value_type) else f"{element}[]"
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "jsonb"
    return next((name for matches, name, _ in _SCALARS if matches(kind)), None)


def fits(kind: pa.DataType, type_name: str, category: str) -> bool:
    """Whether every value of the Arrow type can be a value of this type; names as in `pg_type`, arrays as `_int4`."""
    if pa.types.is_nested(kind):
        return type_name in _JSON | _TEXT or (
            _is_list(kind) and category == "A" and fits(kind.value_type, type_name.removeprefix("_"), "")
        )
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # A type of another category may have its own text form: uuid, enums, json, addresses.
        return type_name in _TEXT | _JSON | {"uuid"} or category not in ("", "N", "D", "T", "B", "A")
    if pa.types.is_decimal(kind):
        return type_name in _NUMERIC | _TEXT
    return type_name in _TEXT or any(matches(kind) and type_name in names for matches, _, names in _SCALARS)


def to_csv(batch: pa.RecordBatch, type_names: list[str]) -> pa.Buffer:
    """The batch as COPY reads it in CSV format: null is nothing, an empty string is two quotes."""
    columns = [_to_text(column, type_name) for column, type_name in zip(batch.columns, type_names, strict=True)]
    output = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))])
    pyarrow.csv.write_csv(table, output, pyarrow.csv.WriteOptions(include_header=False))
    return output.getvalue()


def _to_text(column: pa.Array, type_name: str) -> pa.Array:
    """An array that Arrow's CSV writer renders in the way PostgreSQL reads it."""
    kind = column.type
    if pa.types.is_nested(kind):
        render = _array_literal if _is_list(kind) and type_name.startswith("_") else _json_text
        return pa.array([None if row is None else render(row, kind) for row in column.to_pylist()], pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if row is None else _scalar_text(row) for row in column.to_pylist()], pa.string())
    if pa.types.is_duration(kind):
        return pc.binary_join_element_wise(column.cast(pa.int64()).cast(pa.string()), _UNITS[kind.unit], " ")
    if pa.types.is_timestamp(kind) and kind.tz:
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    return column


def _array_literal(row: list[Any], kind: pa.DataType) -> str:
    return "{" + ",".join("NULL" if value is None else _array_item(value) for value in row) + "}"


def _array_item(value: Any) -> str:
    text = _scalar_text(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _json_text(row: Any, kind: pa.DataType) -> str:
    return json.dumps(_to_json(row, kind), ensure_ascii=False, allow_nan=False)


def _to_json(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {_map_key(key): _to_json(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _to_json(value[field.name], field.type) for field in kind}
    if _is_list(kind):
        return [_to_json(item, kind.value_type) for item in value]
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _scalar_text(value)


def _map_key(key: Any) -> str:
    return json.dumps(key) if isinstance(key, bool | list | dict) else _scalar_text(key)


def _scalar_text(value: Any) -> str:
    match value:
        case bytes():
            return "\\x" + value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case _:
            return str(value)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)  # type: ignore[no-any-return]


def _is_one_of(*kinds: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(is_kind(kind) for is_kind in kinds)


_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}

# What each Arrow type is made into, and the types of existing columns it fits into.
_SCALARS: list[tuple[Callable[[pa.DataType], bool], str, frozenset[str]]] = [
    (pa.types.is_boolean, "boolean", frozenset({"bool"})),
    (
        _is_one_of(pa.types.is_int8, pa.types.is_int16),
        "smallint",
        _NUMERIC | {"int2", "int4", "int8", "float4"},
    ),
    (pa.types.is_int32, "integer", _NUMERIC | {"int4", "int8"}),
    (pa.types.is_int64, "bigint", frozenset({"int8", "numeric"})),
    (pa.types.is_float32, "real", _NUMERIC | {"float4"}),
    (pa.types.is_float64, "double precision", _NUMERIC),
    (_is_one_of(pa.types.is_string, pa.types.is_large_string, pa.types.is_null), "text", frozenset()),
    (_is_one_of(pa.types.is_binary, pa.types.is_large_binary), "bytea", frozenset({"bytea"})),
    (pa.types.is_date, "date", frozenset({"date", "timestamp", "timestamptz"})),
    (
        lambda kind: pa.types.is_timestamp(kind) and bool(kind.tz),
        "timestamptz",
        frozenset({"timestamptz", "timestamp"}),
    ),
    (pa.types.is_timestamp, "timestamp", frozenset({"timestamp"})),
    (pa.types.is_time, "time", frozenset({"time"})),
    (lambda kind: pa.types.is_duration(kind) and kind.unit in _UNITS, "interval", frozenset({"interval"})),
]
