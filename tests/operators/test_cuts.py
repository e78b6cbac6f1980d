"""However a stream is cut into epochs: the first rows of keys, rows without repetitions, and rows looked up."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.eventtime.sides import LEFT, RIGHT, SIDE, Side, carried
from midstream.operators.dedup import Dedup
from midstream.operators.lookup import Lookup
from midstream.operators.top import RANK, Top
from tests.eventtime.local import LocalStep

MICRO = 1_000_000
KEYS = pa.schema([("k", pa.string())])
keys = st.sampled_from(["a", "b", None])
cuts = st.lists(st.integers(0, 30), max_size=6)


def cut(rows: list[Any], at: list[int]) -> list[list[Any]]:
    edges = [0, *sorted(min(place, len(rows)) for place in at), len(rows)]
    return [rows[start:end] for start, end in pairwise(edges)]


@settings(max_examples=60)
@given(st.lists(st.tuples(keys, st.none() | st.integers(0, 5)), max_size=30), cuts, st.integers(1, 3))
def test_the_first_rows(rows: list[tuple[str | None, int | None]], at: list[int], n: int) -> None:
    values = pa.schema([("v", pa.int64()), ("number", pa.int64())])
    step = LocalStep(Top(KEYS, values, n, (("v", "descending"),), ranked=True), ("k",), pa.schema([*KEYS, *values]))
    last: dict[tuple[str | None, int], tuple[int | None, int]] = {}
    numbered = [(k, v, number) for number, (k, v) in enumerate(rows)]
    for epoch in cut(numbered, at):
        columns = list(zip(*epoch, strict=True)) or [(), (), ()]
        for row in step.epoch(pa.table([list(c) for c in columns], schema=pa.schema([*KEYS, *values])), {}):
            last[row["k"], row[RANK]] = (row["v"], row["number"])
    expected = {}
    for key in {k for k, _ in rows}:
        # Nulls come last; of equal ones the first to come is first.
        mine = sorted((v is None, -(v or 0), number, v) for k, v, number in numbered if k == key)
        expected |= {(key, rank): (v, number) for rank, (_, _, number, v) in enumerate(mine[:n], 1)}
    assert last == expected
    step.close()


@settings(max_examples=60)
@given(st.lists(st.tuples(keys, st.integers(0, 9)), max_size=30), cuts)
def test_repetitions(rows: list[tuple[str | None, int]], at: list[int]) -> None:
    """Times are within the delay of each other, so that a key comes once, whatever the epochs."""
    schema = pa.schema([*KEYS, ("at", pa.timestamp("us", tz="UTC"))])
    step = LocalStep(Dedup(KEYS, schema, "at"), ("k",), schema)
    found: Counter[str | None] = Counter()
    for epoch in cut(rows, at):
        table = pa.table([[k for k, _ in epoch], [time * MICRO for _, time in epoch]], schema=schema)
        latest = max((time * MICRO for _, time in epoch), default=None)
        found += Counter(row["k"] for row in step.epoch(table, {"events": latest}, 10 * MICRO))
    assert found == Counter({k for k, _ in rows})
    assert step.late == 0
    step.close()


@settings(max_examples=60)
@given(st.lists(st.tuples(keys, st.booleans(), st.integers(0, 99)), max_size=30), cuts)
def test_rows_looked_up(rows: list[tuple[str | None, bool, int]], at: list[int]) -> None:
    """Within an epoch the rows of the table come first, so it does depend on the cut, in just that way."""
    left = Side(LEFT, KEYS, pa.schema([("v", pa.int64())]))
    right = Side(RIGHT, KEYS, pa.schema([("name", pa.int64())]))
    output = pa.schema([*KEYS, ("v", pa.int64()), ("name", pa.int64())])
    shipped = pa.schema(
        [*KEYS, (carried(LEFT, "v"), pa.int64()), (carried(RIGHT, "name"), pa.int64()), (SIDE, pa.bool_())]
    )
    step = LocalStep(Lookup(left, right, output, False), ("k",), shipped)
    table: dict[str | None, int] = {}
    for epoch in cut(rows, at):
        columns = [
            [k for k, _, _ in epoch],
            [None if named else v for _, named, v in epoch],
            [v if named else None for _, named, v in epoch],
            [named for _, named, _ in epoch],
        ]
        found = Counter((r["k"], r["v"], r["name"]) for r in step.epoch(pa.table(columns, schema=shipped), {}))
        table.update({k: v for k, named, v in epoch if named})
        assert found == Counter((k, v, table.get(k)) for k, named, v in epoch if not named)
    step.close()
