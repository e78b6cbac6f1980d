"""Folds: the user's own function on every row, one by one, in order of arrival."""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.aggregates.arrays import Columns
from midstream.aggregates.partial import Batch, Partial, Updated
from midstream.aggregates.shipment import Shipped
from midstream.aggregates.spec import Fold
from midstream.errors import UserFunctionError

_NEEDS_NO_COPY = (type(None), bool, int, float, complex, str, bytes)


@dataclass(frozen=True)
class Folded(Partial):
    """A fold's accumulator per key. `name` is its state column, `label` what the user called it."""

    name: str
    label: str
    fold: Fold
    type: pa.DataType
    values: tuple[Shipped, ...]
    value_types: tuple[pa.DataType, ...]

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, self.type),)

    def update(self, batch: Batch, old: Columns) -> Updated:
        ordered = pa.array(batch.groups.order)
        columns = [
            batch.column(shipped, type_).take(ordered).to_pylist()
            for shipped, type_ in zip(self.values, self.value_types, strict=True)
        ]
        rows = list(zip(*columns, strict=True))
        ends = [*batch.groups.starts[1:].tolist(), len(rows)]
        accumulators: list[Any] = []
        start = 0
        for group, (accumulator, end) in enumerate(zip(old[self.name].to_pylist(), ends, strict=True)):
            first = self._initial() if accumulator is None else accumulator
            accumulators.append(self._folded(first, rows[start:end], batch, group))
            start = end
        return Updated({self.name: self._array(accumulators, batch)})

    def _initial(self) -> Any:
        initial = self.fold.initial
        return initial if isinstance(initial, _NEEDS_NO_COPY) else copy.deepcopy(initial)

    def _folded(self, accumulator: Any, rows: Sequence[tuple[Any, ...]], batch: Batch, group: int) -> Any:
        add = self.fold.add
        row: tuple[Any, ...] = ()
        try:
            for row in rows:
                accumulator = add(accumulator, *row)
        except Exception as cause:
            given = f"{row} for key {batch.key(group)}"
            raise UserFunctionError.fold_raised(
                self.label, function_name(add), raised_at(add, cause), given, cause
            ) from cause
        return accumulator

    def _array(self, accumulators: list[Any], batch: Batch) -> pa.Array:
        wrong = self._forbidden_none(accumulators)
        if wrong is None:
            wrong = first_misfit(accumulators, self.type)
        if wrong is None:
            return pa.array(accumulators, self.type)
        add, given = self.fold.add, repr(accumulators[wrong])[:200]
        raise UserFunctionError.fold_wrong_type(
            self.label, function_name(add), defined_at(add), given, f"key {batch.key(wrong)}", self.fold.type
        )

    def _forbidden_none(self, accumulators: list[Any]) -> int | None:
        """A group whose accumulator is None though the initial one is not: in state null means no row yet."""
        if self.fold.initial is None or None not in accumulators:
            return None
        return accumulators.index(None)


def first_misfit(values: list[Any], type_: pa.DataType) -> int | None:
    """The position of the first value that is not of this type."""
    try:
        pa.array(values, type_)
    except _NOT_OF_TYPE:
        return next(position for position, value in enumerate(values) if not _fits(value, type_))
    return next((position for position, value in enumerate(values) if _is_cut(value, type_)), None)


_NOT_OF_TYPE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _fits(value: Any, type_: pa.DataType) -> bool:
    try:
        pa.array([value], type_)
        return True
    except _NOT_OF_TYPE:
        return False


def _is_cut(value: Any, type_: pa.DataType) -> bool:
    """Whether Arrow would cut a fraction off without a word, to make an integer of a float."""
    if pa.types.is_integer(type_):
        return isinstance(value, float) and not value.is_integer()
    if pa.types.is_list(type_) and value is not None:
        return any(_is_cut(element, type_.value_type) for element in value)
    if pa.types.is_struct(type_) and isinstance(value, dict):
        return any(_is_cut(value.get(field.name), field.type) for field in type_)
    return False


def function_name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def defined_at(function: Callable[..., Any]) -> str:
    """File and line of a function, or its module when it has no Python source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return str(getattr(function, "__module__", "built in"))
    return f"{code.co_filename}:{code.co_firstlineno}"


def raised_at(function: Callable[..., Any], cause: BaseException) -> str:
    """The line of the user's own file in which it went wrong."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = [f for f in traceback.extract_tb(cause.__traceback__) if code and f.filename == code.co_filename]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else defined_at(function)
