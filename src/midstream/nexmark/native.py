"""The same queries in native Structured Streaming, as far as it can express them with the same result.

Left out: what needs a row to replace an earlier one behind a join or an aggregate (q4, q6, q9), ranks (q19), exact
distinct counts (q15, q16), and those without state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from midstream.nexmark.streams import Loader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Load = Callable[[str], "DataFrame"]


@dataclass(frozen=True)
class NativeQuery:
    """A query, and the output mode it needs."""

    build: Callable[[Load], DataFrame]
    mode: str = "append"
    sql: str | None = None
    """What it must give, if it is not quite what the query of that name gives."""


def marked(spark: SparkSession, load: Loader) -> Load:
    """Streams with the watermarks the queries on midstream have."""
    return lambda table: load(table, spark).withWatermark("date_time", "0 seconds")


def _q3(load: Load) -> DataFrame:
    auctions = load("auction").where("category = 10").selectExpr("seller", "id AS auction")
    people = load("person").where("state IN ('OR', 'ID', 'CA')").selectExpr("id", "name", "city", "state")
    return auctions.join(people, F.expr("seller = id")).select("name", "city", "state", "auction")


def _q5(load: Load) -> DataFrame:
    sliding = F.window("date_time", "10 seconds", "2 seconds").alias("w")
    counts = load("bid").groupBy("auction", sliding).agg(F.count("*").alias("n"))
    best = counts.groupBy(F.window(F.window_time("w"), "2 seconds").alias("v")).agg(
        F.max("n").alias("most"), F.collect_list(F.struct("auction", "n", "w")).alias("all")
    )
    one = best.selectExpr("most", "explode(all) AS x").where("x.n = most")
    return one.selectExpr("x.w.start AS window_start", "x.auction AS auction", "most AS n")


def _q7(load: Load) -> DataFrame:
    window = F.window("date_time", "10 seconds").alias("w")
    best = (
        load("bid")
        .groupBy(window)
        .agg(
            F.max("price").alias("most"),
            F.collect_list(F.struct("auction", "bidder", "price", "date_time")).alias("all"),
        )
    )
    one = best.selectExpr("most", "explode(all) AS x").where("x.price = most")
    return one.selectExpr("x.auction", "x.price", "x.bidder", "x.date_time")


def _q8(load: Load) -> DataFrame:
    window = F.window("date_time", "10 seconds").alias("w")
    people = load("person").select("id", "name", window)
    sellers = load("auction").select("seller", window.alias("s")).dropDuplicates(["seller", "s"])
    joined = people.join(sellers, F.expr("id = seller AND w = s"))
    return joined.selectExpr("id", "name", "w.start AS window_start")


def _q11(load: Load) -> DataFrame:
    visits = (
        load("bid")
        .groupBy("bidder", F.session_window("date_time", "10 seconds").alias("w"))
        .agg(F.count("*").alias("n"))
    )
    return visits.selectExpr("bidder", "n", "w.start AS window_start")


def _q12(load: Load) -> DataFrame:
    clocked = load("bid").withColumn("seen", F.current_timestamp())
    counts = clocked.groupBy("bidder", F.window("seen", "10 seconds").alias("w")).agg(F.count("*").alias("n"))
    return counts.selectExpr("bidder", "n", "w.start AS window_start")


def _q17(load: Load) -> DataFrame:
    from midstream.nexmark.queries import PER_AUCTION, SPARK_DAY

    days = load("bid").selectExpr("auction", "price", f"{SPARK_DAY} AS day")
    return days.groupBy("auction", "day").agg(*(F.expr(sql).alias(name) for name, sql in PER_AUCTION.items()))


def _q18(load: Load) -> DataFrame:
    last = F.max(F.struct("date_time", "price")).alias("x")
    latest = load("bid").groupBy("bidder", "auction").agg(last)
    return latest.selectExpr("bidder", "auction", "x.price", "x.date_time")


def _q20(load: Load) -> DataFrame:
    bids = load("bid").select("auction", "bidder", "price", "date_time")
    auctions = load("auction").where("category = 10").selectExpr("id", "item", "seller")
    return bids.join(auctions, F.expr("auction = id")).select(
        "auction", "bidder", "price", "date_time", "item", "seller"
    )


_PAIRS_AT_ONCE = """SELECT p.id, p.name, p.s AS window_start FROM
    (SELECT *, time_bucket(INTERVAL 10 SECOND, date_time) AS s FROM person) p SEMI JOIN
    (SELECT *, time_bucket(INTERVAL 10 SECOND, date_time) AS s FROM auction) a ON p.id = a.seller AND p.s = a.s"""
"""A native join gives pairs as they come, also in windows that are not over."""

NATIVE: Mapping[str, NativeQuery] = {
    "q3": NativeQuery(_q3),
    "q5": NativeQuery(_q5),
    "q7": NativeQuery(_q7),
    "q8": NativeQuery(_q8, sql=_PAIRS_AT_ONCE),
    "q11": NativeQuery(_q11),
    "q12": NativeQuery(_q12, "update"),
    "q17": NativeQuery(_q17, "update"),
    "q18": NativeQuery(_q18, "update"),
    "q20": NativeQuery(_q20),
}
