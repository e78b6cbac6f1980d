"""Sums: null until a value has counted, an error rather than a wrong figure when they outgrow their type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.aggregates.arrays import Columns, Lane, Values, conform
from midstream.aggregates.partial import Batch, Partial, Updated
from midstream.aggregates.runs import Runs
from midstream.aggregates.shipment import Shipped
from midstream.errors import UserFunctionError
from midstream.state.tables import Mask, Positions

_HALF = np.int64(32)
_LOW_HALF = np.int64(2**32 - 1)


@dataclass(frozen=True)
class Sum(Partial):
    """A sum of type bigint, double or interval."""

    name: str
    type: pa.DataType
    shipped: Shipped
    mergeable = True

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, self.type),)

    def update(self, batch: Batch, old: Columns) -> Updated:
        lane = Lane.of(batch.column(self.shipped, self.type))
        runs = batch.runs.where(lane.valid)
        sums, overflown = _sums(runs, lane.values)
        before, new = Lane.of(old[self.name]), runs.lane(sums)
        total, overflown_now = _add(before.filled(0), new.filled(0))
        if overflown.any() or overflown_now.any():
            groups = _groups_of(runs, overflown) if overflown.any() else np.flatnonzero(overflown_now)
            raise UserFunctionError.sum_overflow(self.name, str(self.type), batch.key(int(groups[0])))
        valid = None if before.valid is None or new.valid is None else before.valid | new.valid
        return Updated({self.name: Lane(total, valid).array(self.type)})

    def merged(self, parts: Columns, runs: Runs) -> Columns:
        lane = Lane.of(parts[self.name])
        counted = runs.where(lane.valid)
        sums, overflown = _sums(counted, lane.values)
        if overflown.any():
            raise UserFunctionError.sum_overflow(self.name, str(self.type), None)
        return {self.name: counted.lane(sums).array(self.type)}


def _groups_of(runs: Runs, which: Mask) -> Positions:
    return np.flatnonzero(which) if runs.owners is None else runs.owners[which]


_NONE: Mask = np.zeros(0, np.bool_)


def _sums(runs: Runs, values: Values) -> tuple[Values, Mask]:
    """The sum of each run, and which sums of integers have left 64 bits."""
    if runs.single or values.dtype.kind == "f":
        return runs.reduce(np.add, values), _NONE
    ordered = values[runs.order]
    largest = max(-int(ordered.min()), int(ordered.max()))
    sums = np.add.reduceat(ordered, runs.starts)
    if largest * int(runs.sizes.max()) < 2**63:
        return sums, _NONE
    # Rare: values so large that they might overflow. Sums of halves cannot, and show whether the whole did.
    high = np.add.reduceat(ordered >> _HALF, runs.starts)
    high += np.add.reduceat(ordered & _LOW_HALF, runs.starts) >> _HALF
    return sums, (high < -(2**31)) | (high >= 2**31)


def _add(a: Values, b: Values) -> tuple[Values, Mask]:
    total = a + b
    if total.dtype.kind == "f":
        return total, _NONE
    return total, ((a ^ total) & (b ^ total)) < 0  # the sign differs from that of both


@dataclass(frozen=True)
class DecimalSum(Partial):
    """A sum of decimals. It is computed in 256 bits, because Arrow wraps around silently in 128."""

    name: str
    type: pa.DataType
    shipped: Shipped
    mergeable = True

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, self.type),)

    def update(self, batch: Batch, old: Columns) -> Updated:
        column, runs = batch.column(self.shipped, self.type), batch.runs
        new = column.take(pa.array(runs.order))
        owners = np.repeat(np.arange(len(runs)), runs.sizes)
        everything = pa.concat_arrays([conform(old[self.name], self.type), new])
        total = self._sum(everything, np.concatenate([np.arange(len(runs)), owners]))
        try:
            return Updated({self.name: conform(total, self.type)})
        except pa.ArrowInvalid as overflow:
            key = self._culprit(batch, total)
            raise UserFunctionError.sum_overflow(self.name, str(self.type), key) from overflow

    def merged(self, parts: Columns, runs: Runs) -> Columns:
        total = self._sum(conform(parts[self.name], self.type).take(pa.array(runs.order)), runs.row_owners)
        try:
            return {self.name: conform(total, self.type)}
        except pa.ArrowInvalid as overflow:
            raise UserFunctionError.sum_overflow(self.name, str(self.type), None) from overflow

    def _sum(self, values: pa.Array, owners: npt.NDArray[np.int64]) -> pa.ChunkedArray:
        wide = pa.table({"owner": owners, "value": values.cast(pa.decimal256(76, self.type.scale))})
        # One thread keeps the groups in the order they first appear in, which is theirs.
        return wide.group_by("owner", use_threads=False).aggregate([("value", "sum")]).column("value_sum")

    def _culprit(self, batch: Batch, total: pa.ChunkedArray) -> tuple[object, ...] | None:
        for group, value in enumerate(total):
            try:
                value.cast(self.type)
            except pa.ArrowInvalid:
                return batch.key(group)
        return None
