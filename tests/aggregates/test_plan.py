"""What a plan ships, keeps and refuses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from midstream.aggregates.plan import AggregatePlan, plan_aggregates
from midstream.aggregates.spec import fold
from midstream.engine.columns import to_spec
from midstream.errors import GraphError

SCHEMA = "k string, x int, y double not null, s string, iv interval year, lc string collate utf8_lcase"


def plan(spark: SparkSession, keys: tuple[str, ...] = ("k",), **aggregates: Any) -> AggregatePlan:
    specs = [to_spec(name, given, spark) for name, given in aggregates.items()]
    return plan_aggregates(spark.createDataFrame([], SCHEMA), keys, specs, complete=False)


def state(planned: AggregatePlan) -> list[str]:
    return planned.function.tables[0].values.names


def test_counting_rows_ships_nothing(spark: SparkSession) -> None:
    planned = plan(spark, n=F.count("*"), also=F.count(F.lit(1)), never_null=F.count("y"))
    assert planned.grouped_sql == planned.per_row_sql == ()
    assert state(planned) == ["count(1)"]


def test_equal_parts_are_shared(spark: SparkSession) -> None:
    planned = plan(spark, a=F.avg("x"), s=F.sum("x"), n=F.count("x"), d=F.stddev("y"), v="var_pop(y)", b=F.avg("y"))
    assert state(planned) == [
        *("sum(x)", "count(x)"),
        *("moments(y) count", "moments(y) mean", "moments(y) squares"),
        *("sum(y)", "count(1)"),
    ]
    assert planned.per_row_sql == ("CAST(x AS bigint) AS __r0", "y AS __r1")
    assert [sql.partition(" AS ")[0] for sql in planned.grouped_sql] == [
        *("sum(x)", "count(x)"),
        *("count(y)", "avg(y)", "var_pop(y)", "sum(y)"),
    ]


def test_state_is_named_by_what_it_holds(spark: SparkSession) -> None:
    before = plan(spark, a=F.sum("x"), b=F.count_distinct("s"), c=F.collect_list("s"))
    after = plan(spark, other=F.collect_list("s"), b="count(DISTINCT s)", new=F.max("x"), a=F.sum("x"))
    assert {table.name for table in before.function.tables} == {table.name for table in after.function.tables}
    assert set(state(before)) < set(state(after))
    changed = plan(spark, a=F.sum("x"), b=F.count_distinct("x"), c=F.collect_list("k"))
    assert {table.name for table in changed.function.tables} & {t.name for t in before.function.tables} == {"main"}


def test_keys_may_be_named_like_state(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "`count(1)` string, `sum(x)` string, x int")
    specs = [to_spec("n", F.count("*"), spark), to_spec("s", F.sum("x"), spark)]
    planned = plan_aggregates(frame, ("count(1)", "sum(x)"), specs, complete=False)
    assert planned.function.tables[0].schema.names == ["count(1)", "sum(x)", "_count(1)", "_sum(x)"]


def test_odd_names_are_quoted(spark: SparkSession) -> None:
    planned = plan(spark, **{"a `b`.c": F.max("x")})
    assert planned.output_schema.names == ["k", "a `b`.c"]


def test_timestamps_are_kept_in_utc(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "k timestamp, t timestamp")
    planned = plan_aggregates(frame, ("k",), [to_spec("m", F.max("t"), spark)], complete=False)
    assert planned.function.output.types == [pa.timestamp("us", "UTC")] * 2


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ("sum(nothing)", "AGGREGATE_NOT_VALID", "nothing"),
        ("sum(x) FILTER (WHERE nothing)", "AGGREGATE_NOT_VALID", "nothing"),
        ("sum(x) FILTER (WHERE s)", "AGGREGATE_NOT_VALID", "BOOLEAN"),
        ("bool_and(x)", "AGGREGATE_NOT_VALID", "BOOLEAN"),
        ("max(iv)", "AGGREGATE_NOT_VALID", "UNSUPPORTED_DATA_TYPE"),
        ("max(null)", "BAD_AGGREGATE", "has no type"),
        ("max(lc)", "BAD_AGGREGATE", "collation"),
        ("count(DISTINCT lc)", "BAD_AGGREGATE", "collation"),
        (fold("nothing", initial=0, add=max, type="int"), "AGGREGATE_NOT_VALID", "a fold over nothing"),
        (fold("x", initial=0, add=max, type="number"), "AGGREGATE_NOT_VALID", "a fold over x"),
        (
            fold("x", initial=0, add=max, type="int", finish=str, result_type="words"),
            "AGGREGATE_NOT_VALID",
            "a fold over x",
        ),
    ],
)
def test_what_does_not_fit_is_named(given: Any, error: str, text: str, spark: SparkSession) -> None:
    with pytest.raises(GraphError) as raised:
        plan(spark, fine=F.count("*"), wrong=given)
    assert raised.value.error_class == error
    assert "'wrong'" in raised.value.message
    assert text in str(raised.value)
