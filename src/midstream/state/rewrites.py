"""Deltas of list tables in which keys lose what they had and get other rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.state.tables import Groups, Positions, TableDelta


def rewritten(groups: Groups, gone: Positions, owners: Positions, values: pa.Table, removed: int) -> TableDelta:
    """All older rows of the keys `gone` go, `removed` in number, and each of the values is added to the key that owns
    it. Keys are told by their groups."""
    nullable = pa.schema([field.with_nullable(True) for field in values.schema])
    nothing = pa.table([pa.nulls(len(gone), field.type) for field in nullable], schema=nullable)
    together = pa.concat_tables([nothing, values.cast(nullable)])
    of_row = np.concatenate([gone, owners])
    order = np.argsort(of_row, kind="stable")
    return TableDelta(
        groups.hashes[of_row[order]],
        groups.keys.take(pa.array(of_row[order])),
        together.take(pa.array(order)) if together.num_columns else together,
        (order < len(gone)) if len(gone) else None,
        added=len(owners),
        removed=removed,
    )
