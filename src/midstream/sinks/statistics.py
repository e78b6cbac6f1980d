"""Column statistics of a staged file in the shape of a Delta log, taken from the Parquet footer in the task."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# Longer strings make the log large and rule out few files. They are left out and not cut, because a cut maximum
# would be too small.
LONGEST_STRING = 32


def column_statistics(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """`numRecords`, and for plain columns `nullCount`, `minValues` and `maxValues`, as plain JSON types.

    Floats get no bounds: Parquet leaves NaN out of them, but to Delta readers NaN is the greatest number.
    """
    statistics: dict[str, Any] = {
        "numRecords": footer.num_rows,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
    }
    leaf = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            _add_column(statistics, footer, leaf, field)
        leaf += _leaves(field.type)
    return statistics


def _add_column(statistics: dict[str, Any], footer: pq.FileMetaData, leaf: int, field: pa.Field) -> None:
    groups = [footer.row_group(i).column(leaf).statistics for i in range(footer.num_row_groups)]
    if any(group is None or not group.has_null_count for group in groups):
        return
    nulls = sum(group.null_count for group in groups)
    statistics["nullCount"][field.name] = nulls
    valued = [group for group in groups if group.num_values > 0]
    if not valued or not _is_bounded(field.type) or not all(group.has_min_max for group in valued):
        return
    low = _to_json(min(group.min for group in valued), field.type)
    high = _to_json(max(group.max for group in valued), field.type)
    if low is not None and high is not None:
        statistics["minValues"][field.name] = low
        statistics["maxValues"][field.name] = high


def _is_bounded(kind: pa.DataType) -> bool:
    types = pa.types
    bounded = (types.is_integer, types.is_date, types.is_timestamp, types.is_string, types.is_large_string)
    return any(is_kind(kind) for is_kind in bounded)


def _to_json(value: Any, kind: pa.DataType) -> int | str | None:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if kind.tz else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > LONGEST_STRING:
        return None
    return value  # type: ignore[no-any-return]


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))
