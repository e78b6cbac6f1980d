"""Least and greatest values, in Spark's order: null never counts, NaN is greater than all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, Lane, choose, conform, validity
from midstream.aggregates.ordering import precedes
from midstream.aggregates.partial import Batch, Partial, Updated
from midstream.aggregates.runs import Runs
from midstream.aggregates.shipment import Shipped
from midstream.state.tables import Mask, Positions


@dataclass(frozen=True)
class Extreme(Partial):
    """The greatest or the least value of a column, of any type that has an order."""

    name: str
    type: pa.DataType
    shipped: Shipped
    greatest: bool
    mergeable = True

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, self.type),)

    def update(self, batch: Batch, old: Columns) -> Updated:
        column = batch.column(self.shipped, self.type)
        before = conform(old[self.name], self.type)
        if Lane.fits(self.type):
            return Updated({self.name: self._of_lanes(batch.runs, Lane.of(column), Lane.of(before))})
        return Updated({self.name: self._better(before, self._best(column, batch.runs))})

    def merged(self, parts: Columns, runs: Runs) -> Columns:
        column = conform(parts[self.name], self.type)
        if Lane.fits(self.type):
            return {self.name: self._best_of_lane(runs, Lane.of(column)).array(self.type)}
        return {self.name: self._best(column, runs)}

    def _best(self, column: pa.Array, runs: Runs) -> pa.Array:
        """The best value of each run, null where it has none."""
        runs = runs.where(validity(column) if column.null_count else None)
        return runs.take(column, self._winners(column, runs))

    def _ufunc(self, lane: Lane) -> np.ufunc:
        # `maximum` lets NaN through, which is right; `fmin` skips it, unless there is nothing else.
        smallest = np.fmin if lane.values.dtype.kind == "f" else np.minimum
        return np.maximum if self.greatest else smallest

    def _best_of_lane(self, runs: Runs, column: Lane) -> Lane:
        runs = runs.where(column.valid)
        return runs.lane(runs.reduce(self._ufunc(column), column.values))

    def _of_lanes(self, runs: Runs, column: Lane, before: Lane) -> pa.Array:
        new = self._best_of_lane(runs, column)
        best = self._ufunc(column)(before.values, new.values)
        if before.valid is None and new.valid is None:
            return Lane(best).array(self.type)
        either = np.where(new.is_valid, new.values, before.values)
        both = before.is_valid & new.is_valid
        return Lane(np.where(both, best, either), before.is_valid | new.is_valid).array(self.type)

    def _better(self, before: pa.Array, new: pa.Array) -> pa.Array:
        was, is_ = validity(before), validity(new)
        return choose(is_ & (~was | self._beats(new, before)), new, before)

    def _beats(self, a: pa.Array, b: pa.Array) -> Mask:
        return precedes(b, a) if self.greatest else precedes(a, b)

    def _winners(self, column: pa.Array, runs: Runs) -> Positions:
        """The row with the best value of each run, by a tournament: neighbours meet until one is left."""
        rows, sizes = runs.order, runs.sizes
        while len(rows) > len(sizes):
            starts = np.cumsum(sizes) - sizes
            place = np.arange(len(rows)) - np.repeat(starts, sizes)
            left = np.flatnonzero(place % 2 == 0)
            meets = place[left] + 1 < np.repeat(sizes, (sizes + 1) // 2)
            a, b = rows[left[meets]], rows[left[meets] + 1]
            won = self._beats(column.take(pa.array(b)), column.take(pa.array(a)))
            rows = rows[left]
            rows[meets] = np.where(won, b, a)
            sizes = (sizes + 1) // 2
        return rows
