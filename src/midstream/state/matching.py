"""Finding the group a row belongs to by its key, for rows that come back from a user's function in any order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.state.keys import canonical_keys, keys_equal
from midstream.state.tables import Positions


def match_groups(groups: pa.Table, keys: pa.Table) -> Positions:
    """For every key the position of the (distinct) group with that key, or -1."""
    if groups.num_rows == keys.num_rows and keys_equal(groups, keys).all():
        return np.arange(groups.num_rows, dtype=np.int64)
    if any(pa.types.is_nested(column.type) for column in groups.columns):
        known = {key: position for position, key in enumerate(canonical_keys(groups))}
        return np.array([known.get(key, -1) for key in canonical_keys(keys)], dtype=np.int64)
    codes = _codes(pa.concat_tables([groups, keys]))
    place = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, dtype=np.int64)
    place[codes[: groups.num_rows]] = np.arange(groups.num_rows)
    return place[codes[groups.num_rows :]]


def _codes(keys: pa.Table) -> npt.NDArray[np.int64]:
    """A small integer for every row, equal where the keys are."""
    codes = np.zeros(keys.num_rows, dtype=np.int64)
    for column in keys.columns:
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # -0.0 and 0.0 are one key
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        combined = codes * (len(encoded.dictionary) + 1) + indices
        codes = np.unique(combined, return_inverse=True)[1] if keys.num_columns > 1 else combined
    return codes
