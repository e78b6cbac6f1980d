"""Columns between Arrow and numpy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from midstream.aggregates.arrays import Lane, conform

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None, 3, 4], pa.int64()),
        ([1, 2, 3, 4], pa.int8()),
        ([1.5, None, 2.5, None], pa.float32()),
        ([True, None, False, True], pa.bool_()),
        ([MOMENT, None, MOMENT, MOMENT], pa.timestamp("us", "UTC")),
        ([None, None, None, None], pa.date32()),
        ([], pa.duration("us")),
    ],
)
def test_lanes_hold_what_arrays_hold(values: list[Any], type_: pa.DataType) -> None:
    assert Lane.fits(type_)
    array = pa.array(values, type_)
    for part in (array, array.slice(1), array.slice(1, 2)):
        again = Lane.of(part).array(type_)
        again.validate(full=True)
        assert again.equals(part)


def test_labels_change_without_a_copy() -> None:
    spark = pa.list_(pa.struct([pa.field("t", pa.timestamp("us", "Europe/Berlin")), pa.field("n", pa.int32())]))
    ours = pa.list_(
        pa.field(
            "element",
            pa.struct([pa.field("t", pa.timestamp("us", "UTC"), nullable=False), pa.field("n", pa.int32())]),
            nullable=False,
        )
    )
    given = pa.array([[{"t": MOMENT, "n": 1}], None, [], [{"t": MOMENT, "n": None}]], spark)
    for part in (given, given.slice(1), given.slice(3)):
        relabelled = conform(part, ours)
        relabelled.validate(full=True)
        assert relabelled.type.equals(ours)
        assert relabelled.to_pylist() == part.to_pylist()
        shared = relabelled.values.field(1).buffers()[1].address
        assert shared == part.values.field(1).buffers()[1].address


def test_another_layout_is_cast() -> None:
    assert conform(pa.chunked_array([[1], [2]], pa.int32()), pa.int64()).equals(pa.array([1, 2], pa.int64()))
