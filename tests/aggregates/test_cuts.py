"""The result does not depend on how rows are cut into epochs, tasks and partitions, nor on the way they travel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.aggregates.spec import aggregate_spec, fold, fold_spec
from tests.aggregates.catalyst import AGGREGATES, Row, plan, unless_empty, variance
from tests.aggregates.memory import Partition, hashable, key_hash

INTS = st.integers(-5, 5) | st.integers(-(2**40), 2**40)
FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, -0.0, 0.0, math.inf])
FINITE = st.floats(-1e3, 1e3)
TEXTS = st.text("abé\U0001f600z", max_size=3)
MONEY = pa.decimal128(20, 2)
CENTS = st.decimals(-1000, 1000, places=2)
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
PAIRS = st.builds(lambda a, b: {"a": a, "b": b}, st.none() | st.integers(-2, 2), st.none() | TEXTS)
LISTS = st.lists(st.none() | st.integers(-2, 2), max_size=3)
TIMES = st.datetimes(datetime(1999, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
DATES = st.dates(date(1960, 1, 1), date(2030, 1, 1))


def distinct(values: list[Any]) -> int:
    return len({hashable(value) for value in values})


def members(values: list[Any]) -> list[Any]:
    return [next(v for v in values if hashable(v) == h) for h in dict.fromkeys(map(hashable, values))]


def decimal_mean(values: list[Decimal]) -> Decimal:
    return (sum(values, Decimal()) / len(values)).quantize(Decimal("1.000000"), ROUND_HALF_UP)


def deviation(values: list[float]) -> float | None:
    sample = variance(values, sample=True)
    return None if sample is None else math.sqrt(sample)


@dataclass(frozen=True)
class Case:
    function: str
    type: pa.DataType
    values: st.SearchStrategy[Any]
    result: pa.DataType
    oracle: Callable[[list[Any]], Any] | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.function}-{self.type}-{'-'.join(name for name, _ in self.options)}"

    def expected(self, rows: list[Row]) -> Any:
        options = dict(self.options)
        counted = [row for row in rows if row.c is True] if "filter" in options else rows
        values = [row.x for row in counted]
        if self.function in ("first", "last") and "ignore_nulls" not in options:
            return (values[0] if self.function == "first" else values[-1]) if values else None
        oracle = self.oracle or AGGREGATES[self.function]
        return oracle([value for value in values if value is not None])


FILTER = (("filter", "c"),)
IGNORE = (("ignore_nulls", True),)
LONG, DOUBLE, TEXT = pa.int64(), pa.float64(), pa.string()
CASES = [
    Case("count", LONG, INTS, LONG),
    Case("count", LONG, INTS, LONG, options=FILTER),
    Case("sum", LONG, INTS, LONG),
    Case("sum", LONG, INTS, LONG, options=FILTER),
    Case("sum", pa.int32(), st.integers(-9, 9), LONG),
    Case("sum", DOUBLE, FLOATS, DOUBLE),
    Case("sum", pa.decimal128(10, 2), CENTS, MONEY),
    Case("avg", LONG, INTS, DOUBLE),
    Case("avg", pa.int32(), st.integers(-9, 9), DOUBLE, options=FILTER),
    Case("avg", DOUBLE, FLOATS, DOUBLE),
    Case("avg", pa.decimal128(10, 2), CENTS, pa.decimal128(14, 6), unless_empty(decimal_mean)),
    Case("stddev_samp", DOUBLE, FINITE, DOUBLE, deviation),
    Case("var_pop", LONG, st.integers(-1000, 1000), DOUBLE, AGGREGATES["var_pop"], FILTER),
    Case("var_pop", DOUBLE, FLOATS, DOUBLE),
    *(
        Case(function, type_, values, type_, options=options)
        for function in ("min", "max")
        for type_, values, options in (
            (LONG, INTS, FILTER),
            (DOUBLE, FLOATS, ()),
            (TEXT, TEXTS, ()),
            (pa.decimal128(10, 2), CENTS, ()),
            (pa.bool_(), st.booleans(), ()),
            (pa.timestamp("us", "UTC"), TIMES, ()),
            (pa.date32(), DATES, ()),
            (PAIR, PAIRS, ()),
            (pa.list_(LONG), LISTS, FILTER),
        )
    ),
    *(
        Case(function, TEXT, TEXTS, TEXT, options=options)
        for function in ("first", "last")
        for options in ((), FILTER, IGNORE, FILTER + IGNORE)
    ),
    Case("first", PAIR, PAIRS, PAIR),
    Case("count_distinct", LONG, st.integers(-3, 3), LONG, distinct),
    Case("count_distinct", DOUBLE, FLOATS, LONG, distinct),
    Case("count_distinct", TEXT, TEXTS, LONG, distinct, FILTER),
    Case("count_distinct", PAIR, PAIRS, LONG, distinct),
    Case("collect_list", TEXT, TEXTS, pa.list_(TEXT), list),
    Case("collect_list", PAIR, PAIRS, pa.list_(PAIR), list, FILTER),
    Case("collect_set", LONG, st.integers(-3, 3), pa.list_(LONG), members),
    Case("collect_set", DOUBLE, FLOATS, pa.list_(DOUBLE), members),
    Case("collect_set", PAIR, PAIRS, pa.list_(PAIR), members, FILTER),
]


@pytest.mark.parametrize("complete", [False, True], ids=["changed", "complete"])
@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_result_is_that_of_all_rows_so_far(case: Case, complete: bool, data: st.DataObject) -> None:
    key = st.sampled_from([None, 1, 2, 3])
    row = st.builds(Row, key, st.none() | case.values, st.sampled_from([True, True, False, None]))
    epochs = data.draw(st.lists(st.lists(row, max_size=8), min_size=1, max_size=4), "epochs")
    planned = plan(aggregate_spec("r", case.function, ("x",), **dict(case.options)), case.type, case.result, complete)
    hash_bits = data.draw(st.sampled_from([1, 64]), "hash bits")
    partitions = [Partition(planned.function, hash_bits) for _ in range(data.draw(st.sampled_from([1, 2])))]

    seen: dict[Any, list[Row]] = {}
    for rows in epochs:
        for row in rows:
            seen.setdefault(row.k, []).append(row)
        results: dict[Any, Any] = {}
        for number, partition in enumerate(partitions):
            own = [row for row in rows if key_hash(row.k) % len(partitions) == number]
            if planned.shipment.supports_grouped and data.draw(st.booleans(), "grouped"):
                seam = data.draw(st.integers(0, len(own)), "seam between tasks")
                arrived = pa.concat_tables([planned.grouped(own[:seam]), planned.grouped(own[seam:])])
            else:
                arrived = planned.per_row(own)
            for result in partition.epoch(arrived).output.to_pylist():
                assert result["k"] not in results
                results[result["k"]] = result["r"]
        due = set(seen) if complete else {row.k for row in rows}
        assert set(results) == due
        for key in due:
            assert_same(results[key], case.expected(seen[key]))


def assert_same(given: Any, expected: Any) -> None:
    if isinstance(expected, float) and given is not None:
        assert given == pytest.approx(expected, rel=1e-9, abs=1e-6, nan_ok=True)
    elif isinstance(expected, list):
        assert list(map(hashable, given)) == list(map(hashable, expected))
    else:
        assert hashable(given) == hashable(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.builds(Row, st.sampled_from([None, 1, 2]), st.none() | TEXTS), max_size=6), max_size=4))
def test_count_of_rows(epochs: list[list[Row]]) -> None:
    planned = plan(aggregate_spec("n", "count", ("*",)), TEXT, LONG)
    partition = Partition(planned.function)
    for number, rows in enumerate(epochs):
        arrived = planned.grouped(rows) if number % 2 else planned.per_row(rows)
        assert arrived.column_names == (["k", "__rows"] if number % 2 else ["k"]), "nothing is shipped to count rows"
        so_far = [row.k for epoch in epochs[: number + 1] for row in epoch]
        output = {row["k"]: row["n"] for row in partition.epoch(arrived).output.to_pylist()}
        assert output == {row.k: so_far.count(row.k) for row in rows}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.builds(Row, st.sampled_from([None, 1, 2]), TEXTS), max_size=6), max_size=4))
def test_fold_is_called_in_order_of_arrival(epochs: list[list[Row]]) -> None:
    joined = fold("x", initial="", add=lambda text, x: f"{text},{x}", type="string")
    planned = plan(fold_spec("r", joined), TEXT, TEXT)
    partition = Partition(planned.function)
    seen: dict[Any, str] = {}
    for rows in epochs:
        for row in rows:
            seen[row.k] = f"{seen.get(row.k, '')},{row.x}"
        output = {row["k"]: row["r"] for row in partition.epoch(planned.per_row(rows)).output.to_pylist()}
        assert output == {row.k: seen[row.k] for row in rows}
