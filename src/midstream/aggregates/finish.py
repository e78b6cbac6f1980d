"""From state to result: the finished column of each aggregate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.aggregates.arrays import Columns, Lane
from midstream.aggregates.folds import defined_at, first_misfit, function_name, raised_at
from midstream.aggregates.spec import Fold
from midstream.errors import UserFunctionError


class Finish(ABC):
    """How one output column is made of the columns of the partials."""

    @abstractmethod
    def array(self, columns: Columns) -> pa.Array: ...


@dataclass(frozen=True)
class Same(Finish):
    """The state is the result."""

    column: str

    def array(self, columns: Columns) -> pa.Array:
        return columns[self.column]


@dataclass(frozen=True)
class Tally(Finish):
    """A count: never null, zero when nothing has counted."""

    column: str

    def array(self, columns: Columns) -> pa.Array:
        column = columns[self.column]
        return column.fill_null(0) if column.null_count else column


@dataclass(frozen=True)
class Mean(Finish):
    """A sum divided by a count, null where nothing has counted."""

    sum: str
    count: str
    type: pa.DataType

    def array(self, columns: Columns) -> pa.Array:
        count = Lane.of(columns[self.count]).filled(0)
        some = count > 0
        divisor = np.where(some, count, 1)
        if pa.types.is_decimal(self.type):
            return self._decimal(columns[self.sum], divisor)
        total = Lane.of(columns[self.sum])
        valid = total.is_valid & some
        if pa.types.is_duration(self.type):
            return Lane(_divide_half_up(total.filled(0), divisor), valid).array(self.type)
        mean = total.filled(0) / divisor
        return Lane(mean, None if valid.all() else valid).array(self.type)

    def _decimal(self, total: pa.Array, count: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
        # Arrow cuts its quotient off; rounding that half up asks only for the next digit, which is right.
        wide = total.cast(pa.decimal256(38, total.type.scale))
        quotient = pc.divide(wide, pa.array(count).cast(pa.decimal256(19, 0)))
        rounded = pc.round(quotient, self.type.scale, round_mode="half_towards_infinity")
        return rounded.cast(self.type)


def _divide_half_up(
    a: np.ndarray[tuple[int], np.dtype[np.int64]], b: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    whole, rest = np.divmod(np.abs(a), b)
    rounded: np.ndarray[tuple[int], np.dtype[np.int64]] = np.sign(a) * (whole + (2 * rest >= b))
    return rounded


@dataclass(frozen=True)
class Spread(Finish):
    """A variance or standard deviation, of the population or of a sample; null with too few values."""

    columns: tuple[str, str, str]
    sample: bool
    root: bool

    def array(self, columns: Columns) -> pa.Array:
        count, _, squares = (Lane.of(columns[name]).filled(0.0) for name in self.columns)
        divisor = count - 1 if self.sample else count
        enough = divisor > 0
        variance = np.divide(squares, divisor, out=np.zeros_like(squares), where=enough)
        result = np.sqrt(variance) if self.root else variance
        return Lane(result, None if enough.all() else enough).array(pa.float64())


@dataclass(frozen=True)
class FoldResult(Finish):
    """The accumulators, or what the user's `finish` makes of them; the initial one where no row has come yet."""

    column: str
    label: str
    fold: Fold
    type: pa.DataType

    def array(self, columns: Columns) -> pa.Array:
        finish, column = self.fold.finish, columns[self.column]
        if finish is None and (self.fold.initial is None or column.null_count == 0):
            return column
        accumulators = [self.fold.initial if value is None else value for value in column.to_pylist()]
        if finish is None:
            return pa.array(accumulators, self.type)
        results = []
        for accumulator in accumulators:
            try:
                results.append(finish(accumulator))
            except Exception as cause:
                raise UserFunctionError.fold_raised(
                    self.label,
                    function_name(finish),
                    raised_at(finish, cause),
                    repr(accumulator)[:200],
                    cause,
                ) from cause
        wrong = first_misfit(results, self.type)
        if wrong is None:
            return pa.array(results, self.type)
        raise UserFunctionError.fold_wrong_type(
            self.label,
            function_name(finish),
            defined_at(finish),
            repr(results[wrong])[:200],
            f"the accumulator {accumulators[wrong]!r}"[:200],
            str(self.fold.result_type),
        )
