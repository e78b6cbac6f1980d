"""Collecting the values of found keys from many blocks into columns in the order the keys were asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from midstream.state.tables import Positions


class Gather:
    """Columns of values by position asked, filled block by block; what is never filled is null."""

    def __init__(self, schema: pa.Schema, size: int) -> None:
        self._size = size
        self._schema = schema
        self._columns = [_column(field.type, size) for field in schema]
        self._filled = np.zeros(size, dtype=np.bool_)

    def add(self, batch: pa.RecordBatch, rows: Positions, owners: Positions) -> None:
        self._filled[owners] = True
        for field, column in zip(self._schema, self._columns, strict=True):
            column.add(batch.column(field.name), rows, owners)

    def finish(self) -> pa.Table:
        arrays = [column.finish(self._filled) for column in self._columns]
        fields = [field.with_nullable(True) for field in self._schema]
        if not arrays:
            return pa.table({"": pa.nulls(self._size)}).select([])
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _column(type_: pa.DataType, size: int) -> _Numbers | _Any:
    if pa.types.is_integer(type_) or pa.types.is_float64(type_) or pa.types.is_float32(type_):
        return _Numbers(type_, size)
    return _Any(type_, size)


class _Numbers:
    """Numbers are scattered straight into one array: no intermediate copies."""

    def __init__(self, type_: pa.DataType, size: int) -> None:
        self._type = type_
        self._values = np.zeros(size, dtype=type_.to_pandas_dtype())
        self._null: np.ndarray[Any, np.dtype[np.bool_]] | None = None

    def add(self, column: pa.Array, rows: Positions, owners: Positions) -> None:
        if column.type != self._type:
            column = column.cast(self._type)
        if column.null_count:
            if self._null is None:
                self._null = np.zeros(len(self._values), dtype=np.bool_)
            self._null[owners] = column.is_null().to_numpy(zero_copy_only=False)[rows]
            column = column.fill_null(0)
        self._values[owners] = column.to_numpy()[rows]

    def finish(self, filled: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
        null = ~filled if self._null is None else ~filled | self._null
        return pa.array(self._values, self._type, mask=null if null.any() else None)


class _Any:
    """Values of any other type are taken piece by piece and put in order at the end."""

    def __init__(self, type_: pa.DataType, size: int) -> None:
        self._type = type_
        self._size = size
        self._pieces: list[pa.Array] = []
        self._owners: list[Positions] = []

    def add(self, column: pa.Array, rows: Positions, owners: Positions) -> None:
        self._pieces.append(column.take(pa.array(rows)).cast(self._type))
        self._owners.append(owners)

    def finish(self, filled: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
        if not self._pieces:
            return pa.nulls(self._size, self._type)
        place = np.zeros(self._size, dtype=np.int64)
        owners = np.concatenate(self._owners)
        place[owners] = np.arange(len(owners))
        return pa.concat_arrays(self._pieces).take(pa.array(place, mask=~filled))
