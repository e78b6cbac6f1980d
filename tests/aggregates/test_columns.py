"""Taking PySpark columns and SQL text apart. When this fails on a new Spark, `engine/columns.py` must learn it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession, Window
from pyspark.sql import functions as F

from midstream.aggregates.spec import AggregateSpec, fold
from midstream.engine.columns import to_spec
from midstream.errors import GraphError

SCHEMA = "a int, b int, x double, t string, flag boolean, `we ird` int, s struct<q: int>, arr array<int>, at timestamp"


@pytest.mark.parametrize(
    ("given", "sql"),
    [
        (lambda: F.count("*"), "count(*)"),
        (lambda: F.count(F.lit(1)), "count(*)"),
        ("count(*)", "count(*)"),
        (lambda: F.count("a"), "count(a)"),
        (lambda: F.count_distinct("a", "b"), "count(DISTINCT a, b)"),
        ("count(distinct a) filter (where b > 1)", "count(DISTINCT a) FILTER (WHERE (b > 1))"),
        (lambda: F.count_if(F.col("flag")), "count(*) FILTER (WHERE flag)"),
        (lambda: F.sum("a").alias("z"), "sum(a)"),
        (lambda: F.sum("`we ird`"), "sum(`we ird`)"),
        (lambda: F.sum("s.q"), "sum(s.q)"),
        (lambda: F.sum(F.col("s")["q"]), "sum(s['q'])"),
        (lambda: F.sum(F.col("a") + 1), "sum(`+`(a, 1))"),
        ("sum(a +   1)", "sum((a + 1))"),
        (lambda: F.mean("x"), "avg(x)"),
        (lambda: F.stddev("x"), "stddev_samp(x)"),
        (lambda: F.variance("x"), "var_samp(x)"),
        (lambda: F.first("t", ignorenulls=True), "first(t, true)"),
        (lambda: F.last("t"), "last(t)"),
        ("first(t)", "first(t)"),
        ("last(t ignore nulls)", "last(t, true)"),
        ("first(t) ignore nulls", "first(t, true)"),
        ("first_value(t) respect nulls", "first(t)"),
        (lambda: F.every("flag"), "bool_and(flag)"),
        (lambda: F.array_agg("t"), "collect_list(t)"),
        ("min(distinct a)", "min(a)"),
        (lambda: F.max(F.struct("a", F.col("b").alias("c"))), "max(struct(a, b AS c))"),
        (lambda: F.max(F.lit(float("nan"))), "max(CAST('NaN' AS DOUBLE))"),
        (lambda: F.max(F.lit(datetime(2020, 1, 1))), "max(TIMESTAMP '2020-01-01 00:00:00')"),
        (lambda: F.max(F.lit(date(2020, 1, 1))), "max(DATE '2020-01-01')"),
        (lambda: F.max(F.lit("it's \\ so\n")), "max('it\\'s \\\\ so\n')"),
        (lambda: F.max(F.when(F.col("a") > 1, F.col("b"))), "max(CASE WHEN `>`(a, 1) THEN b END)"),
        (lambda: F.sum(F.col("a").cast("decimal(10,2)")), "sum(CAST(a AS DECIMAL(10,2)))"),
        # What Spark prints of these is not what they are, so their own text is kept.
        ("sum(aggregate(arr, 0, (acc, y) -> acc + y))", "sum(aggregate(arr, 0, (acc, y) -> acc + y))"),
        (lambda: F.expr("max(cast(s as struct<z: bigint>))"), "max(cast(s as struct<z: bigint>))"),
        ("max('😀' || t)", "max('😀' || t)"),
    ],
)
def test_understood(given: Callable[[], Column] | str, sql: str, spark: SparkSession) -> None:
    spec = to_spec("r", given if isinstance(given, str) else given(), spark)
    assert spec.sql == sql
    column = F.expr(given) if isinstance(given, str) else given()
    frame = spark.createDataFrame([], SCHEMA)
    # The text means to Spark what was written. (`count_if` and aliases of functions are named otherwise.)
    assert frame.agg(F.expr(spec.sql)).schema[0].dataType == frame.agg(column).schema[0].dataType


@pytest.mark.parametrize(
    ("given", "error", "hint"),
    [
        (lambda: F.sum("a") / F.count("*"), "NOT_ONE_AGGREGATE", "in a transform after this step"),
        ("sum(a) / count(*)", "NOT_ONE_AGGREGATE", "in a transform after this step"),
        (lambda: F.coalesce(F.sum("a"), F.lit(0)), "NOT_ONE_AGGREGATE", "in a transform after this step"),
        (lambda: F.sum("a").over(Window.partitionBy("b")), "NOT_ONE_AGGREGATE", "in a transform"),
        (lambda: F.col("a"), "NOT_ONE_AGGREGATE", "name the aggregates"),
        ("summ(a)", "UNKNOWN_AGGREGATE", "did you mean 'sum'?"),
        (lambda: F.median("a"), "UNKNOWN_AGGREGATE", "midstream.fold"),
        ("other.sum(a)", "UNKNOWN_AGGREGATE", "midstream.fold"),
        (lambda: F.sum(F.udf(lambda v: v, "int")("a")), "EXPRESSION_NOT_SQL", "in a transform step first"),
        (lambda: F.max(F.exists("arr", lambda v: v > 1)), "EXPRESSION_NOT_SQL", "write the aggregate as SQL text"),
        ("sum(a + (select 1))", "EXPRESSION_NOT_SQL", "in a transform step first"),
        ("max(t ilike any ('x', 'y'))", "EXPRESSION_NOT_SQL", "in a transform step first"),
        (lambda: F.count("t.*"), "EXPRESSION_NOT_SQL", "in a transform step first"),
        (lambda: F.sum_distinct("a"), "BAD_AGGREGATE", "only count can be DISTINCT"),
        ("count(distinct *)", "BAD_AGGREGATE", "name the columns"),
        ("collect_list(a) ignore nulls", "BAD_AGGREGATE", "only first and last"),
        ("sum(a, b)", "BAD_AGGREGATE", "give one"),
        ("sum(a", "BAD_AGGREGATE", "sum(amount)"),
        (lambda: 5, "BAD_AGGREGATE", "SQL text"),
    ],
)
def test_refused(given: Any, error: str, hint: str, spark: SparkSession) -> None:
    with pytest.raises(GraphError) as raised:
        to_spec("total", given if isinstance(given, str) else given(), spark)
    assert raised.value.error_class == error
    assert "'total'" in raised.value.message
    assert hint in (raised.value.hint or "")


def test_a_column_of_another_frame_is_refused(spark: SparkSession) -> None:
    with pytest.raises(GraphError, match="EXPRESSION_NOT_SQL"):
        to_spec("r", F.max(spark.range(3)["id"]), spark)


def test_fold_passes_through(spark: SparkSession) -> None:
    given = fold("a", "b", initial=0, add=lambda total, a, b: total + a * b, type="bigint")
    assert to_spec("r", given, spark) == AggregateSpec("r", "fold", ("a", "b"), fold=given)
