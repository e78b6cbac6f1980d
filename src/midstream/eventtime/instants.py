"""Times as numbers: microseconds since 1970."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.state.ranges import to_orderable

Instants: TypeAlias = npt.NDArray[np.int64]


def instants(rows: pa.Table, column: str) -> Instants:
    """The times in a column, 0 for a null."""
    return np.asarray(pc.fill_null(to_orderable(rows.column(column)), 0), np.int64)


def least(times: Instants) -> int | None:
    """The first of some times."""
    return int(times.min()) if len(times) else None
