"""Counting: rows of a group, or rows in which a column is not null."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, Lane, conform
from midstream.aggregates.partial import ROWS, Batch, Partial, Updated
from midstream.aggregates.runs import Runs
from midstream.aggregates.shipment import Shipped
from midstream.state.tables import Positions


@dataclass(frozen=True)
class Count(Partial):
    """Without a shipped column it counts rows, for which nothing travels: a group's size is the count."""

    name: str
    shipped: Shipped | None = None
    mergeable = True

    @property
    def state(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, pa.int64()),)

    def update(self, batch: Batch, old: Columns) -> Updated:
        total = self._count(batch) + Lane.of(old[self.name]).filled(0)
        return Updated({self.name: Lane(total).array(pa.int64())})

    def merged(self, parts: Columns, runs: Runs) -> Columns:
        return added_up(self.name, parts, runs)

    def _count(self, batch: Batch) -> Positions:
        if batch.grouped:
            name = self.shipped.grouped if self.shipped else ROWS
            counts = Lane.of(conform(batch.rows.column(name), pa.int64()))
            return batch.runs.reduce(np.add, counts.values)
        counted = batch.rows_with(self.shipped) if self.shipped else None
        if counted is None:
            return batch.groups.sizes
        return batch.runs.reduce(np.add, counted.astype(np.int64))


def added_up(name: str, parts: Columns, runs: Runs) -> Columns:
    """The counts of keys, made of those of their parts."""
    return {name: Lane(runs.reduce(np.add, Lane.of(parts[name]).filled(0))).array(pa.int64())}
