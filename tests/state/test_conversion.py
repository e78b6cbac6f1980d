"""State of an earlier schema: converted as it is read and as it is merged, never all at once."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from midstream.errors import CheckpointError
from midstream.state.compaction import CompactionPolicy, apply_compaction, run_compaction
from midstream.state.conversion import Conversion, converted, widens
from midstream.state.directory import DirectoryStore
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, StepState, decode_manifest, encode_manifest
from midstream.state.tables import TableKind
from tests.state.model import Table, next_merge, spec_of

OLD = pa.table({"k": ["a", "b"], "n": pa.array([1, None], pa.int32())})


def one(rows: pa.Table, **conversion: Any) -> list[dict[str, Any]]:
    values = pa.schema(conversion.pop("values"))
    return converted(rows, ["k"], [Conversion(values, **conversion)], None).to_pylist()


def test_added_widened_and_renamed_columns() -> None:
    new = one(OLD, values=[("count", pa.int64()), ("extra", pa.string())], rename={"n": "count"})
    assert new == [{"k": "a", "count": 1, "extra": None}, {"k": "b", "count": None, "extra": None}]


def text_of_n(rows: pa.Table) -> pa.Table:
    return pa.table({"t": [f"{k}{n}" for k, n in zip(*rows.to_pydict().values(), strict=True)]})


def fewer(rows: pa.Table) -> pa.Table:
    return pa.table({"t": ["x"]})


def not_a_table(rows: pa.Table) -> pa.Table:
    return rows.to_pylist()


def other_column(rows: pa.Table) -> pa.Table:
    return rows


def of_another_type(rows: pa.Table) -> pa.Table:
    return pa.table({"t": [[1]] * rows.num_rows})


def test_a_users_function() -> None:
    new = one(OLD, values=[("t", pa.string())], code=pickle.dumps(text_of_n))
    assert new == [{"k": "a", "t": "a1"}, {"k": "b", "t": "bNone"}]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (fewer, "made 1 rows of 2"),
        (not_a_table, "gave list"),
        (other_column, "no column 't'"),
        (of_another_type, "column 't' cannot become"),
    ],
)
def test_functions_that_give_the_wrong_thing(function: Any, expected: str) -> None:
    with pytest.raises(CheckpointError, match=f"BAD_STATE_CONVERSION.*{expected}"):
        one(OLD, values=[("t", pa.string())], code=pickle.dumps(function))


def test_narrowing_fails_only_for_what_does_not_fit() -> None:
    narrow = {"values": [("n", pa.int8())]}
    assert one(OLD, **narrow)[0] == {"k": "a", "n": 1}
    with pytest.raises(CheckpointError, match=r"BAD_STATE_CONVERSION.*'n'"):
        one(pa.table({"k": ["a"], "n": pa.array([1000], pa.int32())}), **narrow)


def test_old_and_new_segments_side_by_side_and_merged(tmp_path: Path) -> None:
    table = Table(DirectoryStore(tmp_path), spec_of(TableKind.VALUE))
    table.write([(("a", 1), (1, "x")), (("b", 2), (2, "x")), (("c", 3), (3, "x"))])
    table.write([(("b", 2), None)])
    wider = pa.schema([("s", pa.string()), ("v", pa.float64()), ("new", pa.int32())])
    table.convert(Conversion(wider))
    table.write([(("a", 1), (10, "y"))])
    expected = [(("a", 1), (10, "y")), (("c", 3), (3, "x"))]
    assert sorted(table.scan()) == expected
    assert table.get([("a", 1), ("b", 2), ("c", 3)]) == {key: [value] for key, value in expected}
    written = len(list(table.store.list("segments")))
    job = next_merge(table.state, CompactionPolicy(deltas=3))
    assert job is not None
    merged = apply_compaction(table.state, run_compaction(table.store, job))
    assert merged is not None
    table.state = merged
    assert {segment.schema for segment in merged.segments} == {1}
    assert sorted(table.scan()) == expected
    assert len(list(table.store.list("segments"))) > written


def test_conversions_are_part_of_the_manifest(tmp_path: Path) -> None:
    table = Table(DirectoryStore(tmp_path), spec_of(TableKind.VALUE))
    table.convert(Conversion(pa.schema([("v", pa.int64())]), {"a": "v"}, b"code"))
    beginning = Ledger.open(table.store).beginning()
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    manifest = Manifest("id", 1, 1, beginning.driver, "now", steps=steps)
    assert decode_manifest(encode_manifest(manifest), "x") == manifest


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        (pa.int8(), pa.int16(), True),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), True),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), False),
        (pa.int32(), pa.decimal128(12, 2), True),
        (pa.int64(), pa.decimal128(12, 2), False),
        (pa.string(), pa.int32(), False),
    ],
)
def test_what_is_wider(before: pa.DataType, after: pa.DataType, fits: bool) -> None:
    assert widens(before, after) is fits
