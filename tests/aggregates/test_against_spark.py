"""The same plans on Spark: epoch by epoch, grouped and per row, against batch `groupBy(…).agg(…)` on all rows."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from midstream.aggregates.plan import AggregatePlan, plan_aggregates
from midstream.aggregates.spec import AggregateSpec, fold
from midstream.engine.columns import to_spec
from tests.aggregates.memory import Partition, hashable

KEYS = ["k", "part"]
CUTS, EPOCHS = 3, 4
ORDERED = ("i", "f", "d", "m", "s", "b", "ts", "ntz", "dt", "st", "arr", "iv", "bin")
SCHEMA = (
    "k string, part double, i int, l bigint, f float, d double, m decimal(12,2), w decimal(38,4), s string,"
    " b boolean, ts timestamp, ntz timestamp_ntz, dt date, st struct<a: int, t: timestamp>, arr array<int>,"
    " iv interval day to second, bin binary, mp map<string, int>, digits string"
)


def mergeable() -> dict[str, Any]:
    """Aggregates that can be computed in part before the exchange."""
    return {
        "n": F.count("*"),
        "n_s": F.count("s"),
        "n_both": F.count_if(F.col("s").isNotNull() & F.col("i").isNotNull()),
        "n_pair": "count(s, i)",
        "n_large": "count(*) FILTER (WHERE i > 2)",
        "sum_i": F.sum("i"),
        "sum_l": F.sum("l"),
        "sum_f": F.sum("f"),
        "sum_d": F.sum("d"),
        "sum_m": F.sum("m"),
        "sum_w": F.sum("w"),
        "sum_iv": F.sum("iv"),
        "sum_digits": F.sum("digits"),
        "sum_expression": F.sum(F.col("i") * 2 + F.lit(1)),
        "sum_positive": "sum(m) FILTER (WHERE d > 0)",
        "avg_i": F.avg("i"),
        "avg_l": F.mean("l"),
        "avg_f": F.avg("f"),
        "avg_d": F.avg("d"),
        "avg_m": F.avg("m"),
        "avg_w": F.avg("w"),
        "avg_iv": F.avg("iv"),
        "avg_digits": F.avg("digits"),
        "avg_some": "avg(i) FILTER (WHERE s > 'b')",
        **{f"min_{column}": F.min(column) for column in ORDERED},
        **{f"max_{column}": F.max(column) for column in ORDERED},
        "max_latest": F.max(F.struct("ts", F.col("s").alias("text"))),
        "first_s": F.first("s"),
        "last_i": F.last("i"),
        "last_d": F.last("d", ignorenulls=True),
        "first_map": F.first("mp"),
        "first_some": "first(s) FILTER (WHERE i > 2)",
        "last_some": "last(st, true) FILTER (WHERE i > 2)",
        "stddev": F.stddev("i"),
        "stddev_pop": F.stddev_pop("m"),
        "var_samp": F.variance("f"),
        "var_pop": F.var_pop("d"),
        "var_some": "var_pop(i) FILTER (WHERE s > 'b')",
        "all_b": F.bool_and("b"),
        "any_b": F.bool_or("b"),
        "any_large": F.some(F.col("i") > 4),
    }


def of_rows() -> dict[str, Any]:
    """Aggregates that need every row."""
    return {
        **{f"distinct_{c}": F.count_distinct(c) for c in ("i", "d", "s", "m", "ts", "st", "arr", "b")},
        "distinct_pair": F.count_distinct("s", "i"),
        "distinct_some": "count(DISTINCT s) FILTER (WHERE i > 2)",
        **{f"list_{c}": F.collect_list(c) for c in ("i", "s", "d", "st", "ts", "arr", "mp")},
        "list_some": "collect_list(s) FILTER (WHERE i > 2)",
        **{f"set_{c}": F.collect_set(c) for c in ("i", "d", "s", "st", "arr")},
        "n": F.count("*"),
    }


def random_rows(seed: int, count: int) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    moment = datetime(2024, 3, 31, 1, 30)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    def row() -> tuple[Any, ...]:
        at = moment + timedelta(minutes=chance.randrange(100), microseconds=chance.randrange(10))
        number = chance.randrange(6)
        return (
            chance.choice(["a", "b", None]),
            chance.choice([0.0, math.nan, None]),
            maybe(number),
            maybe(chance.randrange(-(2**58), 2**58)),
            maybe(chance.choice([1.5, -2.25, 0.0])),
            maybe(chance.choice([chance.uniform(-9, 9), 3.0, math.nan, 0.0, -0.0])),
            maybe(Decimal(chance.randrange(-10_000, 10_000)) / 100),
            maybe(Decimal(chance.randrange(-(10**30), 10**30)).scaleb(-4)),
            maybe(chance.choice(["a", "b", "c", "é", "😀", ""])),
            maybe(chance.random() < 0.5),
            maybe(at.replace(tzinfo=UTC)),
            maybe(at),
            maybe(date(2024, 1, 1) + timedelta(days=number)),
            maybe((maybe(number % 2), maybe(at.replace(tzinfo=UTC)))),
            maybe([maybe(number % 3)] * (number % 3)),
            maybe(timedelta(seconds=number, microseconds=1)),
            maybe(bytes([250 + number])),
            maybe({"n": maybe(number)}),
            maybe(str(number)),
        )

    return [row() for _ in range(count)]


class Stream:
    """Random rows cut into epochs and tasks in several ways, and what batch Spark says of every prefix."""

    def __init__(self, spark: SparkSession) -> None:
        chance = random.Random(7)
        self.rows = random_rows(3, 70)
        self.places = [sorted((chance.randrange(EPOCHS), chance.randrange(2)) for _ in self.rows) for _ in range(CUTS)]
        self.empty = spark.createDataFrame([], SCHEMA)
        self.spark = spark

    def arrived(self) -> DataFrame:
        cut = [
            (cut, *place, *row)
            for cut, places in enumerate(self.places)
            for place, row in zip(places, self.rows, strict=True)
        ]
        schema = f"cut int, epoch int, task int, {SCHEMA}"
        return self.spark.createDataFrame(cut, schema).coalesce(1)  # one partition keeps the order

    def expected(self, specs: list[AggregateSpec]) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The result of every prefix by number of rows and key."""
        sizes = {sum(place[0] <= e for place in places) for places in self.places for e in range(EPOCHS)}
        prefixes = [(size, *row) for size in sizes for row in self.rows[:size]]
        frame = self.spark.createDataFrame(prefixes, f"size int, {SCHEMA}").coalesce(1)
        expected: dict[tuple[Any, ...], dict[str, Any]] = {}
        # Apart, because Spark moves rows about for distinct ones, and lists would come in another order.
        for distinct in (False, True):
            calls = [F.expr(s.sql).alias(s.name) for s in specs if s.distinct is distinct]
            for row in frame.groupBy("size", *KEYS).agg(*calls).toArrow().to_pylist() if calls else []:
                key = (row.pop("size"), *(hashable(row[k]) for k in KEYS))
                expected.setdefault(key, {}).update(row)
        return expected

    def size(self, cut: int, epoch: int) -> int:
        return sum(place[0] <= epoch for place in self.places[cut])


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> Iterator[Stream]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")  # state is in UTC whatever the session says
    yield Stream(spark)
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def specs_of(aggregates: dict[str, Any], spark: SparkSession) -> list[AggregateSpec]:
    return [to_spec(name, given, spark) for name, given in aggregates.items()]


def grouped(stream: Stream, plan: AggregatePlan) -> pa.Table:
    calls = [F.expr(sql) for sql in plan.grouped_sql]
    frame = stream.arrived().groupBy("cut", "epoch", "task", *KEYS).agg(*calls, F.count("*").alias("__rows"))
    return frame.toArrow()


def per_row(stream: Stream, plan: AggregatePlan) -> pa.Table:
    return stream.arrived().selectExpr("cut", "epoch", "task", *KEYS, *plan.per_row_sql).toArrow()


def run(stream: Stream, plan: AggregatePlan, arrived: pa.Table, expected: dict[tuple[Any, ...], Any]) -> None:
    function = pickle.loads(cloudpickle.dumps(plan.function))
    for cut in range(CUTS):
        partition = Partition(function)
        for epoch in range(EPOCHS):
            mine = pa.compute.and_(pa.compute.equal(arrived["cut"], cut), pa.compute.equal(arrived["epoch"], epoch))
            rows = arrived.filter(mine).sort_by("task").drop_columns(["cut", "epoch", "task"])
            rows = rows.set_column(1, "part", rows["part"].cast(pa.float64()))
            output = partition.epoch(rows).output.to_pylist()
            size = stream.size(cut, epoch)
            wanted = {key: row for key, row in expected.items() if key[0] == size}
            given = {(size, *(hashable(row[k]) for k in KEYS)): row for row in output}
            if function.complete:
                assert set(given) == set(wanted)
            else:
                assert set(given) == {(size, *map(hashable, key)) for key in keys_of(rows)}
            for key, row in given.items():
                for column, value in row.items():
                    assert same(column, value, wanted[key][column]), (column, value, wanted[key][column])


def keys_of(rows: pa.Table) -> set[tuple[Any, ...]]:
    return {tuple(map(hashable, key.values())) for key in rows.select(KEYS).to_pylist()}


def same(column: str, given: Any, expected: Any) -> bool:
    if isinstance(expected, float) and given is not None:
        return bool(given == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True))
    if column.startswith("set_"):
        return len(given) == len(expected) and set(map(hashable, given)) == set(map(hashable, expected))
    return bool(hashable(given) == hashable(expected))


@pytest.mark.parametrize("complete", [False, True], ids=["changed", "complete"])
def test_mergeable_aggregates(stream: Stream, spark: SparkSession, complete: bool) -> None:
    specs = specs_of(mergeable(), spark)
    plan = plan_aggregates(stream.empty, KEYS, specs, complete)
    assert plan.supports_grouped
    expected = stream.expected(specs)
    run(stream, plan, grouped(stream, plan), expected)
    run(stream, plan, per_row(stream, plan), expected)


@pytest.mark.parametrize("complete", [False, True], ids=["changed", "complete"])
def test_aggregates_of_rows(stream: Stream, spark: SparkSession, complete: bool) -> None:
    specs = specs_of(of_rows(), spark)
    plan = plan_aggregates(stream.empty, KEYS, specs, complete)
    assert not plan.supports_grouped
    assert plan.grouped_sql == ()
    run(stream, plan, per_row(stream, plan), stream.expected(specs))


def test_output_schema_is_that_of_batch_spark(stream: Stream, spark: SparkSession) -> None:
    specs = specs_of({**mergeable(), **of_rows()}, spark)
    plan = plan_aggregates(stream.empty, KEYS, specs, complete=False)
    batch = stream.empty.groupBy(*KEYS).agg(*(F.expr(spec.sql).alias(spec.name) for spec in specs))
    assert plan.output_schema == batch.schema


def test_folds(stream: Stream, spark: SparkSession) -> None:
    def latest(state: dict[str, Any] | None, i: int | None, ts: datetime | None) -> dict[str, Any] | None:
        if ts is None or (state is not None and state["ts"] >= ts):
            return state
        return {"i": i, "ts": ts}

    aggregates = {
        "list": fold("s", initial=[], add=lambda words, s: [*words, s], type="array<string>"),
        "latest": fold("i", "ts", initial=None, add=latest, type="struct<i: int, ts: timestamp>"),
        "size": fold(
            "coalesce(s, '')",
            initial=[],
            add=lambda words, s: [*words, s],
            type="array<string>",
            finish=len,
            result_type="int",
        ),
        "n": F.count("*"),
    }
    plan = plan_aggregates(stream.empty, KEYS, specs_of(aggregates, spark), complete=False)
    assert [f.dataType.simpleString() for f in plan.output_schema][2:4] == [
        "array<string>",
        "struct<i:int,ts:timestamp>",
    ]
    partition = Partition(plan.function)
    arrived = per_row(stream, plan)
    seen: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for epoch in range(EPOCHS):
        places = zip(stream.places[0], stream.rows, strict=True)
        for row in (row for place, row in places if place[0] == epoch):
            seen.setdefault(hashable(row[:2]), []).append(row)
        mine = pa.compute.and_(pa.compute.equal(arrived["cut"], 0), pa.compute.equal(arrived["epoch"], epoch))
        rows = arrived.filter(mine).drop_columns(["cut", "epoch", "task"])
        for result in partition.epoch(rows).output.to_pylist():
            own = seen[hashable((result["k"], result["part"]))]
            assert result["list"] == [row[8] for row in own]
            assert result["size"] == result["n"] == len(own)
            times = [(row[10], -position, row[2]) for position, row in enumerate(own) if row[10] is not None]
            newest = max(times, default=None)
            assert result["latest"] == (newest and {"i": newest[2], "ts": newest[0]})
