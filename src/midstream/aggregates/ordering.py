"""Spark's order of values for types numpy cannot compare: strings by bytes, decimals, structs and arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.aggregates.arrays import Lane, validity
from midstream.state.tables import Mask


def precedes(a: pa.Array, b: pa.Array) -> Mask:
    """Row by row, whether `a` comes before `b`. Where either is null the answer means nothing."""
    if not pa.types.is_nested(a.type):
        return np.asarray(pc.fill_null(pc.less(a, b), False).to_numpy(zero_copy_only=False))
    ranks = _ranks(pa.concat_arrays([a, b]))
    return np.less(ranks[: len(a)], ranks[len(a) :])


def _ranks(array: pa.Array) -> npt.NDArray[np.int64]:
    """Integers in the order of the values, the same for equal ones; -1 for null, first within a struct."""
    if pa.types.is_struct(array.type):
        ranks = np.zeros(len(array), np.int64)
        for index in range(array.type.num_fields):
            field = _ranks(array.field(index)) + 1
            ranks = _dense(ranks * (int(field.max(initial=0)) + 1) + field)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        ranks = _list_ranks(array)
    elif Lane.fits(array.type):
        values = Lane.of(array).filled(0)
        ranks = _dense(values + 0.0 if values.dtype.kind == "f" else values)  # -0.0 equals 0.0
    else:
        encoded = array.dictionary_encode()
        place = np.empty(len(encoded.dictionary), np.int64)
        place[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(place))
        indices = encoded.indices.fill_null(0).to_numpy()
        ranks = place[indices] if len(place) else np.zeros(len(array), np.int64)
    return np.where(validity(array), ranks, -1)


def _list_ranks(array: pa.Array) -> npt.NDArray[np.int64]:
    elements = _ranks(array.flatten()).tolist()
    ends = np.cumsum(array.value_lengths().fill_null(0).to_numpy()).tolist()
    lists = [tuple(elements[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    place = {value: rank for rank, value in enumerate(sorted(set(lists)))}
    return np.array([place[value] for value in lists], np.int64)


def _dense(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)
