"""Count, mean and sum of squared deviations: what variances and standard deviations are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.aggregates.arrays import Columns, Lane
from midstream.aggregates.partial import Batch, Partial, Updated
from midstream.aggregates.runs import Runs
from midstream.aggregates.shipment import Shipped

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Moments:
    count: Floats
    mean: Floats
    squares: Floats


@dataclass(frozen=True)
class Moments(Partial):
    """Moments merged by Chan's formula, which does not lose digits as sums of squares do.

    Grouped partials bring count, mean and variance; row by row only the value travels, as its own mean.
    """

    name: str
    count: Shipped
    mean: Shipped
    variance: Shipped
    mergeable = True

    @property
    def columns(self) -> tuple[str, str, str]:
        return f"{self.name} count", f"{self.name} mean", f"{self.name} squares"

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return tuple(pa.field(name, pa.float64()) for name in self.columns)

    def update(self, batch: Batch, old: Columns) -> Updated:
        before = _Moments(*(Lane.of(old[name]).filled(0.0) for name in self.columns))
        merged = _merge(before, self._of_batch(batch))
        arrays = (Lane(values).array(pa.float64()) for values in (merged.count, merged.mean, merged.squares))
        return Updated(dict(zip(self.columns, arrays, strict=True)))

    def merged(self, parts: Columns, runs: Runs) -> Columns:
        count, mean, squares = (Lane.of(parts[name]).filled(0.0) for name in self.columns)
        counted = runs.where(count > 0)
        order = counted.order
        reduced = _reduce(counted, _Moments(count[order], mean[order], squares[order]))
        spread = (counted.lane(values).values for values in (reduced.count, reduced.mean, reduced.squares))
        return {name: Lane(values).array(pa.float64()) for name, values in zip(self.columns, spread, strict=True)}

    def _of_batch(self, batch: Batch) -> _Moments:
        mean = Lane.of(batch.column(self.mean, pa.float64()))
        runs = batch.runs.where(mean.valid)
        if batch.grouped:
            count = Lane.of(batch.column(self.count, pa.float64())).values[runs.order]
            squares = Lane.of(batch.column(self.variance, pa.float64())).values[runs.order] * count
        else:
            count = np.ones(len(runs.order))
            # Zero, but as in Spark not a number for infinities.
            squares = mean.values[runs.order] - mean.values[runs.order]
        reduced = _reduce(runs, _Moments(count, mean.values[runs.order], squares))
        spread = (runs.lane(values).values for values in (reduced.count, reduced.mean, reduced.squares))
        return _Moments(*spread)


def _reduce(runs: Runs, rows: _Moments) -> _Moments:
    """The moments of each run from those of its rows; the first row serves as origin, which keeps digits."""
    if runs.single:
        return rows
    count = np.add.reduceat(rows.count, runs.starts)
    first = rows.mean[runs.starts]
    shift = rows.count * (rows.mean - np.repeat(first, runs.sizes))
    mean = first + np.add.reduceat(shift, runs.starts) / count
    deviation = rows.mean - np.repeat(mean, runs.sizes)
    squares = np.add.reduceat(rows.squares + rows.count * deviation * deviation, runs.starts)
    return _Moments(count, mean, squares)


def _merge(a: _Moments, b: _Moments) -> _Moments:
    count = a.count + b.count
    delta = b.mean - a.mean
    share = np.divide(b.count, count, out=np.zeros_like(count), where=count > 0)
    mean = a.mean + delta * share
    squares = a.squares + b.squares + delta * delta * a.count * share
    only_a, only_b = b.count == 0, a.count == 0
    return _Moments(
        count,
        np.where(only_a, a.mean, np.where(only_b, b.mean, mean)),
        np.where(only_a, a.squares, np.where(only_b, b.squares, squares)),
    )
