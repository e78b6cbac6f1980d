"""Between Arrow and numpy: columns as one array of an exact type, and fixed-width columns as raw values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.state.tables import Mask

Columns: TypeAlias = dict[str, pa.Array]
Values: TypeAlias = npt.NDArray[Any]


def conform(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    """The column as one array of exactly this type, without a copy when only labels differ.

    Spark and Arrow label differently: the name of a time zone, whether an element of a list may be null.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.type.equals(type_):
        return column
    return pa.array(_Relabelled(column, type_)) if _same_layout(column.type, type_) else column.cast(type_)


def _same_layout(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given.id != wanted.id:
        return False
    if pa.types.is_timestamp(given):
        return bool(given.unit == wanted.unit)
    if not pa.types.is_nested(given):
        return bool(given.equals(wanted))
    return given.num_fields == wanted.num_fields and all(
        _same_layout(given.field(i).type, wanted.field(i).type) for i in range(given.num_fields)
    )


@dataclass(frozen=True)
class _Relabelled:
    """The buffers of an array under another type of the same layout, through Arrow's C data interface."""

    array: pa.Array
    type: pa.DataType

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.type.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


def validity(array: pa.Array) -> Mask:
    """Which values are not null."""
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def choose(first: Mask, a: pa.Array, b: pa.Array) -> pa.Array:
    """Values of `a` where `first` holds, else of `b`."""
    if first.all():
        return a
    return pc.if_else(pa.array(first), a, b) if first.any() else b


@dataclass(frozen=True)
class Lane:
    """A fixed-width column as numpy sees it: raw values and, when some are null, which ones are valid.

    The raw value of a null is arbitrary.
    """

    values: Values
    valid: Mask | None = None

    @staticmethod
    def fits(type_: pa.DataType) -> bool:
        """Whether columns of this type are lanes: integers, floats, booleans, dates, times; not decimals."""
        return bool(
            pa.types.is_integer(type_)
            or pa.types.is_float32(type_)
            or pa.types.is_float64(type_)
            or pa.types.is_boolean(type_)
            or pa.types.is_temporal(type_)
        )

    @classmethod
    def of(cls, array: pa.Array) -> Lane:
        valid = validity(array) if array.null_count else None
        if pa.types.is_boolean(array.type):
            return cls(array.fill_null(False).to_numpy(zero_copy_only=False), valid)
        dtype = _dtype(array.type)
        if len(array) == 0:
            return cls(np.empty(0, dtype), valid)
        data = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
        return cls(data, valid)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_valid(self) -> Mask:
        return np.ones(len(self), np.bool_) if self.valid is None else self.valid

    def filled(self, value: complex) -> Values:
        """The values with every null replaced."""
        return self.values if self.valid is None else np.where(self.valid, self.values, value)

    def array(self, type_: pa.DataType) -> pa.Array:
        """The lane as an Arrow array of this fixed-width type; values are shared, not copied."""
        if pa.types.is_boolean(type_):
            return pa.array(self.values.astype(np.bool_), mask=None if self.valid is None else ~self.valid)
        values = np.ascontiguousarray(self.values, _dtype(type_))
        bitmap = None if self.valid is None else pa.py_buffer(np.packbits(self.valid, bitorder="little"))
        return pa.Array.from_buffers(type_, len(values), [bitmap, pa.py_buffer(values)])


def _dtype(type_: pa.DataType) -> np.dtype[Any]:
    name = f"i{type_.bit_width // 8}" if pa.types.is_temporal(type_) else type_.to_pandas_dtype()
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype
