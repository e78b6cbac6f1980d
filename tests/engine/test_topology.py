"""The shapes a pipeline can have: several sources, unions, fan-out, keyed steps after keyed steps, joins."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.errors import GraphError
from tests.engine.harness import Inbox, as_it_stands, canonical, latest, run_available

EVENTS = "k string, v bigint"


@pytest.fixture
def events(inbox: Callable[..., Inbox]) -> Inbox:
    events = inbox(EVENTS)
    events.add(("a", 1), ("b", 2), ("a", 3))
    events.add(("b", 4), ("c", 5), (None, 6))
    events.add(("a", 7))
    return events


def test_several_sources_of_different_schemas_are_one_query(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    clicks = inbox("user string, page struct<path: string, depth: int>, `at time` timestamp_ntz", "clicks")
    buys = inbox("user string, price decimal(10,2), user_id array<int>", "buys")
    people = inbox("name string", "people")
    clicks.add(("u", {"path": "/", "depth": 0}, None), ("w", {"path": "/x", "depth": 1}, None))
    clicks.add(("u", {"path": "/y", "depth": None}, None))
    buys.add(("u", Decimal("1.50"), [1, 2]))
    buys.add((None, Decimal("2.50"), None))
    buys.add(("u", Decimal("3.00"), []))
    people.add(("u",), ("w",))
    sinks = {name: ms.sinks.memory() for name in ("clicks", "buys", "people")}
    flow = ms.pipeline(
        clicks.source("clicks").key_by("user").aggregate("deep", n=F.max("page.depth")).sink("a", sinks["clicks"]),
        buys.source("buys").key_by("user").aggregate("spent", s=F.sum("price")).sink("b", sinks["buys"]),
        people.source("people").sink("c", sinks["people"]),
    )
    run = run_available(flow, spark, tmp_path / "chk")
    # Three queries would have three query ids and their own epochs; here all sources move together.
    assert run.last_epoch == 2
    assert run.epochs()[0].rows == 5
    deep = clicks.batch(spark).groupBy("user").agg(F.max("page.depth").alias("n"))
    spent = buys.batch(spark).groupBy("user").agg(F.sum("price").alias("s"))
    assert as_it_stands(sinks["clicks"], "user") == canonical(deep)
    assert as_it_stands(sinks["buys"], "user") == canonical(spent)
    assert canonical(sinks["people"].to_table()) == canonical(people.batch(spark))


def test_a_source_without_news_does_not_hold_up_the_others(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    busy, quiet, sink = inbox("v bigint", "busy"), inbox("w string", "quiet"), ms.sinks.memory()
    busy.add((1,))
    busy.add((2,))
    flow = ms.pipeline(busy.source("busy").sink("out", sink), quiet.source("quiet").sink("unused", ms.sinks.memory()))
    run_available(flow, spark, tmp_path / "chk")
    assert [row["v"] for row in sink.to_pylist()] == [1, 2]


def test_union_of_sources_and_transforms_by_column_name(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], events: Inbox
) -> None:
    others = inbox("v bigint, k string", "others")
    others.add((100, "a"), (200, "z"))
    sink = ms.sinks.memory()
    doubled = events.source().transform("doubled", lambda df: df.withColumn("v", F.col("v") * 2))
    joined = doubled.union("all", others.source("others"), doubled.sql("again", "SELECT k, v FROM input"))
    flow = joined.key_by("k").aggregate("sums", n=F.count("*"), s=F.sum("v")).sink("out", sink)
    run_available(flow, spark, tmp_path / "chk")
    twice = events.batch(spark).withColumn("v", F.col("v") * 2)
    all_rows = twice.unionByName(twice).unionByName(others.batch(spark))
    expected = all_rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    assert as_it_stands(sink, "k") == canonical(expected)


def test_every_kind_of_step_feeds_several_others(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    sinks = {name: ms.sinks.memory() for name in ("raw", "odd", "odd2", "sums", "sums2", "sizes", "odds", "max")}
    source = events.source()
    odd = source.transform("odd", lambda df: df.where("v % 2 = 1"))
    sums = source.key_by("k").aggregate("sums", s=F.sum("v"))
    sizes = sums.transform("size", lambda df: df.selectExpr("s > 4 AS large", "s"))
    flow = ms.pipeline(
        source.sink("raw", sinks["raw"]),
        odd.sink("odd-1", sinks["odd"]),
        odd.sink("odd-2", sinks["odd2"]),
        odd.key_by("k").aggregate("odds", n=F.count("*")).sink("odds-out", sinks["odds"]),
        sums.sink("sums-1", sinks["sums"]),
        sums.sink("sums-2", sinks["sums2"]),
        sums.key_by("k").aggregate("max", output_mode="complete", m=F.max("s")).sink("max-out", sinks["max"]),
        sizes.key_by("large").aggregate("sizes", n=F.count("*")).sink("sizes-out", sinks["sizes"]),
    )
    run = run_available(flow, spark, tmp_path / "chk")
    batch = events.batch(spark)
    assert canonical(sinks["raw"].to_table()) == canonical(batch)
    assert canonical(sinks["odd"].to_table()) == canonical(batch.where("v % 2 = 1"))
    assert sinks["odd"].epochs == sinks["odd2"].epochs
    assert as_it_stands(sinks["odds"], "k") == canonical(
        batch.where("v % 2 = 1").groupBy("k").agg(F.count("*").alias("n"))
    )
    totals = batch.groupBy("k").agg(F.sum("v").alias("s"))
    assert as_it_stands(sinks["sums"], "k") == canonical(totals)
    assert sinks["sums"].epochs == sinks["sums2"].epochs
    # Values only grow here, so the largest total ever seen of a key is its total now.
    assert canonical(sinks["max"].to_table()) == canonical(totals.withColumnRenamed("s", "m"))
    # Changed totals, epoch by epoch: a=4 b=2 | b=6 c=5 null=6 | a=11.
    assert as_it_stands(sinks["sizes"], "large") == canonical(
        pa.Table.from_pylist([{"large": False, "n": 2}, {"large": True, "n": 4}])
    )
    assert set(run.epochs()[0].steps) >= {"raw", "sums", "odds", "max", "sizes"}
    assert run.epochs()[0].rows == 3 + 2 * 2 + 3 + 2


def test_a_shared_keyed_step_runs_once_an_epoch(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def running(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        from uuid import uuid4

        (marks / uuid4().hex).touch()
        sums = rows.group_by("k").aggregate([("v", "sum")]).rename_columns(["k", "s"])
        return sums, sums

    step = (
        events.source()
        .key_by("k")
        .stateful("sums", running, state="s bigint", output="k string, s bigint", parallelism=1)
    )
    flow = ms.pipeline(
        step.sink("direct", ms.sinks.noop()),
        step.transform("t", lambda df: df).sink("through", ms.sinks.noop()),
        step.key_by("s").aggregate("again", n=F.count("*")).sink("keyed", ms.sinks.noop()),
    )
    run = run_available(flow, spark, tmp_path / "chk")
    assert run.last_epoch == 2
    assert len(list(marks.iterdir())) == 3


def test_keyed_after_transform_after_keyed(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    sink = ms.sinks.memory()
    flow = (
        events.source()
        .key_by("k")
        .aggregate("sums", output_mode="complete", s=F.sum("v"))
        .transform("parity", lambda df: df.selectExpr("s % 2 AS odd", "s", "k"))
        .key_by("odd")
        .stateful("newest", _replace_all, state="ks array<string>", output="odd bigint, ks array<string>")
        .sink("out", sink)
    )
    run_available(flow, spark, tmp_path / "chk")
    # Totals after the last epoch: a=11 b=6 c=5 null=6.
    assert {row["odd"]: sorted(row["ks"], key=str) for row in sink.to_pylist()[-2:]} == {
        1: ["a", "c"],
        0: [None, "b"],
    }


def _replace_all(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    by_parity = rows.group_by("odd", use_threads=False).aggregate([("k", "list")]).rename_columns(["odd", "ks"])
    return by_parity, by_parity


@pytest.mark.parametrize(
    "text", ["SELECT k, v + 1 AS w FROM input WHERE v > 2", "FROM input |> WHERE v > 2 |> SELECT k, v + 1 AS w"]
)
def test_sql_steps(spark: SparkSession, tmp_path: Path, events: Inbox, text: str) -> None:
    sink = ms.sinks.memory()
    flow = (
        events.source().sql("more", text).sql("last", "SELECT k, max(w) AS w FROM input GROUP BY k").sink("out", sink)
    )
    run_available(flow, spark, tmp_path / "chk")
    found = {epoch: canonical(table) for epoch, table in sink.epochs.items()}
    assert found == {
        0: [(("k", "a"), ("w", 4))],
        1: canonical(pa.Table.from_pylist([{"k": "b", "w": 5}, {"k": "c", "w": 6}, {"k": None, "w": 7}])),
        2: [(("k", "a"), ("w", 8))],
    }


def test_an_sql_step_leaves_a_view_named_input_alone(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    spark.range(7).createOrReplaceTempView("input")
    try:
        flow = events.source().sql("some", "SELECT v FROM input").sink("out", ms.sinks.noop())
        run_available(flow, spark, tmp_path / "chk")
        assert spark.table("input").count() == 7
    finally:
        spark.catalog.dropTempView("input")


def test_sql_over_several_streams(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    spark.range(7).createOrReplaceTempView("totals")
    sink, source = ms.sinks.memory(), events.source()
    totals = source.key_by("k").aggregate("sum", total=F.sum("v"))
    joined = source.sql("share", "SELECT k, v, total FROM input JOIN totals USING (k)", totals=totals)
    run_available(joined.sink("out", sink), spark, tmp_path / "chk")
    assert sorted(tuple(row.values()) for row in sink.epochs[0].to_pylist()) == [("a", 1, 4), ("a", 3, 4), ("b", 2, 2)]
    assert [tuple(row.values()) for row in sink.epochs[2].to_pylist()] == [("a", 7, 11)]
    assert spark.table("totals").count() == 7, "the user's own view is left alone"
    spark.catalog.dropTempView("totals")
    with pytest.raises(GraphError, match="input"):
        source.sql("twice", "SELECT * FROM input", input=totals)


def test_joins_with_views_and_static_frames(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    names = spark.createDataFrame([("a", "Ada"), ("b", "Bob")], "k string, name string")
    names.createOrReplaceTempView("names")
    sinks = {name: ms.sinks.memory() for name in ("view", "frame", "sums")}
    source = events.source()
    flow = ms.pipeline(
        source.sql("viewed", "SELECT name, v FROM input JOIN names USING (k)").sink("view", sinks["view"]),
        source.transform("framed", lambda df: df.join(names, "k", "left")).sink("frame", sinks["frame"]),
        source.transform("broadcast", lambda df: df.join(F.broadcast(names), "k"))
        .key_by("name")
        .aggregate("sums", s=F.sum("v"), n=F.count("*"))
        .sink("sums-out", sinks["sums"]),
    )
    try:
        run_available(flow, spark, tmp_path / "chk")
    finally:
        spark.catalog.dropTempView("names")
    joined = events.batch(spark).join(names, "k")
    assert canonical(sinks["view"].to_table()) == canonical(joined.select("name", "v"))
    assert canonical(sinks["frame"].to_table()) == canonical(events.batch(spark).join(names, "k", "left"))
    sums = joined.groupBy("name").agg(F.sum("v").alias("s"), F.count("*").alias("n"))
    assert as_it_stands(sinks["sums"], "name") == canonical(sums)


@pytest.mark.parametrize("hint", ["merge", "broadcast", "shuffle_hash"])
def test_a_shuffled_join_before_an_aggregate(spark: SparkSession, tmp_path: Path, events: Inbox, hint: str) -> None:
    names = spark.createDataFrame([("a", 10), ("b", 20), ("b", 30)], "k string, w int")
    sink = ms.sinks.memory()
    joined = events.source().transform("joined", lambda df: df.join(names.hint(hint), "k"))
    flow = joined.key_by("k").aggregate("sums", s=F.sum("w"), n=F.count("*")).sink("out", sink)
    run_available(flow, spark, tmp_path / "chk")
    expected = events.batch(spark).join(names, "k").groupBy("k").agg(F.sum("w").alias("s"), F.count("*").alias("n"))
    assert as_it_stands(sink, "k") == canonical(expected)


def test_an_aggregation_before_an_aggregate(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    sink = ms.sinks.memory()
    largest = events.source().transform("largest", lambda df: df.groupBy("k").agg(F.max("v").alias("v")))
    run_available(largest.key_by("k").aggregate("sums", s=F.sum("v")).sink("out", sink), spark, tmp_path / "chk")
    assert latest(sink.to_pylist(), "k") == {
        "a": {"k": "a", "s": 3 + 7},
        "b": {"k": "b", "s": 2 + 4},
        "c": {"k": "c", "s": 5},
        None: {"k": None, "s": 6},
    }


@pytest.mark.parametrize("keyed", ["aggregate", "stateful"])
def test_a_transform_that_joins_a_keyed_step_with_itself(
    spark: SparkSession, tmp_path: Path, events: Inbox, keyed: str
) -> None:
    by_key, sink = events.source().key_by("k"), ms.sinks.memory()
    if keyed == "aggregate":
        sums = by_key.aggregate("sums", s=F.sum("v"))
    else:
        sums = by_key.stateful("sums", _add_up, state="s bigint", output="k string, s bigint")

    def with_best(df: DataFrame) -> DataFrame:
        best = df.agg(F.max("s").alias("best"))
        return df.crossJoin(best).join(df.select("k", F.col("s").alias("same")), "k")

    run = run_available(sums.transform("best", with_best).sink("out", sink), spark, tmp_path / "chk")
    rows = [(epoch, tuple(row.values())) for epoch, table in sink.epochs.items() for row in table.to_pylist()]
    assert sorted(rows) == [
        (0, ("a", 4, 4, 4)),
        (0, ("b", 2, 4, 2)),
        (1, ("b", 6, 6, 6)),
        (1, ("c", 5, 6, 5)),
        (2, ("a", 11, 11, 11)),
    ]
    assert run.read_state("sums").num_rows == 4


def _add_up(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    both = pa.concat_tables([rows.select(["k", "v"]), state.rename_columns(["k", "v"])])
    sums = both.group_by("k").aggregate([("v", "sum")]).rename_columns(["k", "s"])
    return sums, sums


AFTER: dict[str, tuple[Callable[[DataFrame], DataFrame], int]] = {
    "limit 0": (lambda df: df.limit(0), 0),
    "where false": (lambda df: df.where("false"), 0),
    "join with nothing": (lambda df: df.join(df.sparkSession.createDataFrame([], "k string"), "k"), 0),
    "limit 1": (lambda df: df.limit(1), 2),
    "no column": (lambda df: df.select(F.lit(1)), 5),
    "where": (lambda df: df.where("k = 'b'"), 2),
    "coalesce": (lambda df: df.coalesce(1), 5),
    "repartition": (lambda df: df.repartition(3).sortWithinPartitions("k"), 5),
    "union with itself": (lambda df: df.union(df), 10),
    "distinct": (lambda df: df.select("k").distinct(), 5),
    "aggregate": (lambda df: df.agg(F.count("*")), 2),
}
"""What a transform may make of the output of a keyed step, and how many rows that is in two epochs."""


@pytest.mark.parametrize(
    ("after", "mode"),
    [*((after, "changed") for after in AFTER), ("limit 0", "complete"), ("union with itself", "complete")],
)
def test_state_is_kept_whatever_a_later_step_makes_of_the_output(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], after: str, mode: str
) -> None:
    """Catalyst computes only what is asked for, and perhaps twice; a state task must take effect once in any case."""
    events, sink = inbox(EVENTS), ms.sinks.noop()
    events.add(("a", 1), ("b", 2), ("a", 3))
    events.add(("b", 4), ("c", 5), (None, 6))
    function, rows = AFTER[after]
    sums = events.source().key_by("k").aggregate("sums", output_mode=mode, parallelism=3, s=F.sum("v"))  # type: ignore[arg-type]
    run = run_available(sums.transform("after", function).sink("out", sink), spark, tmp_path / "chk")
    state = {row["k"]: row["sum(v)"] for row in run.read_state("sums").to_pylist()}
    assert state == {"a": 4, "b": 6, "c": 5, None: 6}
    if mode == "changed":
        assert sink.rows == rows


@pytest.mark.parametrize("mode", ["changed", "complete"])
def test_a_union_of_keyed_steps(spark: SparkSession, tmp_path: Path, events: Inbox, mode: str) -> None:
    """Their state tasks run in one stage, where Spark numbers partitions across both."""
    sink, source = ms.sinks.memory(), events.source()
    sums = source.key_by("k").aggregate("sums", output_mode=mode, parallelism=3, n=F.sum("v"))  # type: ignore[arg-type]
    counts = source.key_by("k").aggregate("counts", output_mode=mode, parallelism=2, n=F.count("*"))  # type: ignore[arg-type]
    both = sums.union("both", counts.transform("moved", lambda df: df.select(F.col("n") + 100, "k").toDF("n", "k")))
    run_available(both.sink("out", sink), spark, tmp_path / "chk")
    batch = events.batch(spark).groupBy("k").agg(F.sum("v").alias("s"), (F.count("*") + 100).alias("n"))
    totals = {(row.k, n) for row in batch.collect() for n in (row.s, row.n)}
    if mode == "complete":
        assert {(row["k"], row["n"]) for row in sink.epochs[2].to_pylist()} == totals
    else:
        newest = {(row["k"], row["n"] > 100): row["n"] for row in sink.to_pylist()}
        assert {(k, n) for (k, _), n in newest.items()} == totals


def test_sinks_beside_and_behind_a_keyed_step_get_the_same(spark: SparkSession, tmp_path: Path, events: Inbox) -> None:
    fused, behind, out = ms.sinks.memory(), ms.sinks.memory(), tmp_path / "out"
    sums = events.source().key_by("k").aggregate("sums", s=F.sum("v"))
    flow = ms.pipeline(
        sums.sink("fused", fused),
        sums.transform("same", lambda df: df).sink("behind", behind),
        sums.sink("files", ms.sinks.parquet(out)),
    )
    run_available(flow, spark, tmp_path / "chk")
    for epoch in range(3):
        expected = canonical(fused.epochs[epoch])
        assert canonical(behind.epochs[epoch]) == expected
        assert canonical(spark.read.parquet(str(out / f"epoch={epoch}"))) == expected


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (lambda s: s.sql("bad", "SELECT nope FROM input"), "(?s)'bad'.*nope"),
        (lambda s: s.sql("bad", "SELEC v"), "(?s)'bad'.*SELEC"),
        (lambda s: s.transform("bad", lambda df: df.select("nope")), "(?s)'bad'.*nope"),
        (lambda s: s.transform("bad", lambda df: 3), "'bad'.*int, not a DataFrame"),
        (lambda s: s.transform("bad", lambda df: df.no_such_method()), "'bad'.*no_such_method"),
        (lambda s: s.union("bad", s.transform("other", lambda df: df.drop("v"))), "'bad'"),
        (lambda s: s.key_by("kk").aggregate("bad", n=F.count("*")), "(?s)'bad'.*'kk'.*did you mean 'k'"),
        (lambda s: s.key_by("k").aggregate("bad", n=F.sum("w")), "(?s)'n'.*`w`"),
    ],
)
def test_a_step_that_does_not_fit_is_named_before_anything_runs(
    spark: SparkSession,
    tmp_path: Path,
    events: Inbox,
    broken: Callable[[ms.Stream], ms.Stream],
    expected: str,
) -> None:
    flow = broken(events.source()).sink("out", ms.sinks.noop())
    with pytest.raises(GraphError, match=expected):
        flow.start(spark, str(tmp_path / "chk"))
    assert not (tmp_path / "chk").exists()
