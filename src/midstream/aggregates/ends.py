"""The first and the last value of a key, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, Lane, choose, conform, validity
from midstream.aggregates.partial import Batch, Partial, Updated
from midstream.aggregates.shipment import Shipped


@dataclass(frozen=True)
class End(Partial):
    """One end of a key's rows: its first or its last value.

    With `keeps_nulls` null is a value like any other, and a second column tells whether there was a row; a
    row counts when `counted` is not null, and always without it. Otherwise only rows with a value count.
    """

    name: str
    type: pa.DataType
    value: Shipped
    last: bool
    keeps_nulls: bool
    counted: Shipped | None = None

    @property
    def state(self) -> tuple[pa.Field, ...]:
        value = pa.field(self.name, self.type)
        return (value, pa.field(self._seen, pa.bool_())) if self.keeps_nulls else (value,)

    @property
    def _seen(self) -> str:
        return f"{self.name} seen"

    def update(self, batch: Batch, old: Columns) -> Updated:
        must_be = [self.value] if not self.keeps_nulls else [self.counted] if self.counted else []
        runs = batch.runs.where(batch.rows_with(*must_be))
        column = batch.column(self.value, self.type)
        new = runs.take(column, runs.last_rows if self.last else runs.first_rows)
        has_new = runs.lane(runs.starts).is_valid
        before = conform(old[self.name], self.type)
        had = Lane.of(old[self._seen]).filled(False) if self.keeps_nulls else validity(before)
        value = choose(has_new if self.last else has_new & ~had, new, before)
        if not self.keeps_nulls:
            return Updated({self.name: value})
        return Updated({self.name: value, self._seen: Lane(np.logical_or(had, has_new)).array(pa.bool_())})
