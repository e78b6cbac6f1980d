from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.keys import canonical_keys, group_rows, keys_equal
from midstream.state.matching import match_groups

TEXT = st.one_of(st.none(), st.sampled_from(["a", "b", "ä", "", "a" * 40]))
FLOAT = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]))
ROWS = st.lists(st.tuples(TEXT, FLOAT), max_size=40)


def table_of(rows: list[tuple[Any, Any]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"a": a, "b": b} for a, b in rows], pa.schema([("a", pa.string()), ("b", pa.float64())])
    )


def same(left: Any, right: Any) -> Any:
    return next(canonical_keys(table_of([left]))) == next(canonical_keys(table_of([right])))


@given(ROWS, st.integers(1, 6))
def test_groups_hold_equal_keys_in_order_of_arrival(rows: list[tuple[Any, Any]], spread: int) -> None:
    keys = table_of(rows)
    canonical = list(canonical_keys(keys))
    hashes = np.array([hash(key) % spread for key in canonical], dtype=np.int64)
    groups = group_rows(hashes, keys)
    assert sorted(groups.order.tolist()) == list(range(len(rows)))
    assert groups.hashes.tolist() == sorted(groups.hashes.tolist())
    edges = [*groups.starts.tolist(), len(rows)]
    members = [groups.order[start:end].tolist() for start, end in pairwise(edges)]
    assert all(positions == sorted(positions) for positions in members)
    assert all(len({canonical[p] for p in positions}) == 1 for positions in members)
    assert len(members) == len(set(canonical))
    assert list(canonical_keys(groups.keys)) == [canonical[positions[0]] for positions in members]
    assert groups.sizes.tolist() == [len(positions) for positions in members]


@given(ROWS, ROWS)
def test_equality_is_null_and_nan_safe(left: list[tuple[Any, Any]], right: list[tuple[Any, Any]]) -> None:
    size = min(len(left), len(right))
    equal = keys_equal(table_of(left[:size]), table_of(right[:size]))
    assert equal.tolist() == [same(a, b) for a, b in zip(left[:size], right[:size], strict=True)]


@given(ROWS, ROWS)
def test_rows_find_their_group(rows: list[tuple[Any, Any]], asked: list[tuple[Any, Any]]) -> None:
    distinct = list(dict.fromkeys(canonical_keys(table_of(rows))))
    first = {key: rows[list(canonical_keys(table_of(rows))).index(key)] for key in distinct}
    groups = table_of([first[key] for key in distinct])
    expected = [distinct.index(key) if key in distinct else -1 for key in canonical_keys(table_of(asked))]
    assert match_groups(groups, table_of(asked)).tolist() == expected


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [1], [], None, [1, 2], [None]],
        [{"x": 1, "y": "a"}, {"x": 1, "y": None}, None, {"x": 1, "y": "a"}],
        [[0.0, math.nan], [-0.0, math.nan], [math.nan], None],
    ],
)
def test_nested_keys_are_compared_by_content(values: list[Any]) -> None:
    keys = pa.table({"k": pa.array(values)})
    groups = group_rows(np.zeros(len(values), dtype=np.int64), keys)
    assert len(groups) == len(set(canonical_keys(keys)))
    assert match_groups(groups.keys, keys).tolist() == [
        list(canonical_keys(groups.keys)).index(key) for key in canonical_keys(keys)
    ]
