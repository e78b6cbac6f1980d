"""Rows that came too late, told from the others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.state.keys import flatten, group_rows
from midstream.state.tables import Groups, Mask, Positions

NEVER = -(2**62)
"""A watermark before all times."""


def without_late(late: Mask, rows: pa.Table, groups: Groups) -> tuple[Positions | None, pa.Table, Groups]:
    """The positions of the rows of late groups, and the other rows with their groups."""
    if not late.any():
        return None, rows, groups
    of_row = np.repeat(late, groups.sizes)
    kept = groups.order[~of_row]
    sizes = groups.sizes[~late]
    starts = np.cumsum(sizes) - sizes
    order = np.arange(len(kept), dtype=np.int64)
    remaining = Groups(groups.hashes[~late], groups.keys.filter(pa.array(~late)), order, starts)
    return groups.order[of_row], rows.take(pa.array(kept)), remaining


def without_rows(late: Mask, rows: pa.Table, groups: Groups) -> tuple[Positions | None, pa.Table, Groups]:
    """The positions of late rows, and the other rows with their groups."""
    if not late.any():
        return None, rows, groups
    hashes = np.empty(rows.num_rows, np.int64)
    hashes[groups.order] = np.repeat(groups.hashes, groups.sizes)
    remaining = flatten(rows.filter(pa.array(~late)))
    return np.flatnonzero(late), remaining, group_rows(hashes[~late], remaining.select(groups.keys.column_names))
