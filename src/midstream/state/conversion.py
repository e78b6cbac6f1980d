"""State of an earlier schema, converted as it is read: rows are never rewritten for a change of schema alone.

A table keeps the list of its conversions; every segment says how many of them its rows have been through.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.state.tables import Mask


@dataclass(frozen=True)
class Conversion:
    """From the values a table had to those it has: columns renamed, then the user's function, then types widened and
    missing columns added as nulls. `code` is that function, pickled; it takes and gives a table of keys and values."""

    values: pa.Schema
    rename: Mapping[str, str] = field(default_factory=dict)
    code: bytes | None = None

    def apply(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Old rows, keys first, as new ones."""
        if not rows.num_rows:
            empty = [pa.chunked_array([], field_.type) for field_ in self.values]
            return pa.table([*(rows.column(key) for key in keys), *empty], names=[*keys, *self.values.names])
        names = [name if name in keys else self.rename.get(name, name) for name in rows.column_names]
        rows = rows.rename_columns(names)
        if self.code is not None:
            rows = self._by_function(rows, keys)
        columns = [_as(rows, field_) for field_ in self.values]
        return pa.table([*(rows.column(key) for key in keys), *columns], names=[*keys, *self.values.names])

    def _by_function(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        assert self.code is not None
        given = _function(self.code)(rows)
        if not isinstance(given, pa.Table):
            raise CheckpointError.bad_conversion(f"it gave {type(given).__name__}, not a pyarrow table")
        missing = [name for name in self.values.names if name not in given.column_names]
        if missing or given.num_rows != rows.num_rows:
            what = (
                f"it gave no column {missing[0]!r}" if missing else f"it made {given.num_rows} rows of {rows.num_rows}"
            )
            raise CheckpointError.bad_conversion(what)
        for key in keys:
            given = given.drop_columns(key) if key in given.column_names else given
            given = given.append_column(key, rows.column(key))
        return given


@lru_cache(maxsize=64)
def _function(code: bytes) -> Any:
    return pickle.loads(code)


def _as(rows: pa.Table, wanted: pa.Field) -> pa.ChunkedArray:
    if wanted.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, wanted.type)])
    try:
        return rows.column(wanted.name).cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
        raise CheckpointError.bad_conversion(f"column '{wanted.name}' cannot become {wanted.type}: {cause}") from cause


def converted(rows: pa.Table, keys: Sequence[str], conversions: Sequence[Conversion], deleted: Mask | None) -> pa.Table:
    """Rows (keys, then values) after some conversions. Deleted rows have no values, and no function is to see them."""
    if not conversions:
        return rows
    if deleted is None or not deleted.any():
        for conversion in conversions:
            rows = conversion.apply(rows, keys)
        return rows
    alive = converted(rows.filter(pa.array(~deleted)), keys, conversions, None)
    place = np.cumsum(~deleted) - 1
    positions = pa.array(place, mask=deleted)
    columns = [rows.column(name) if name in keys else alive.column(name).take(positions) for name in alive.column_names]
    return pa.table(columns, names=alive.column_names)


_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}


def widens(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether every value of one type is one of the other, exactly.

    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.float64())
    (True, False)
    """
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        whole = (before.precision - before.scale) <= (after.precision - after.scale)
        return bool(whole and before.scale <= after.scale)
    if pa.types.is_integer(before) and pa.types.is_decimal(after):
        digits = {8: 3, 16: 5, 32: 10, 64: 19}[before.bit_width]
        return bool(after.precision - after.scale >= digits)
    return after in _WIDER.get(before, ())
