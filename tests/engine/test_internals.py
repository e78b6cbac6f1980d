"""The facts about Spark's inside that the engine leans on, on this version of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, LongType, StructField, StructType

import midstream as ms
from midstream.engine.exchange import exchanged
from midstream.engine.internals import (
    EPOCH_CONF,
    SessionConf,
    before_exchange,
    map_in_arrow,
    read_offsets,
    run_job,
    run_partitions,
)
from midstream.engine.rehearsal import made_up_row
from midstream.engine.reports import ReportBox
from midstream.schemas import NOTHING
from midstream.state.hashspace import HASH_MIN, HashRange, even_ranges, partition_sql, ranges_from
from midstream.state.ledger import read_manifest
from midstream.state.store import open_store
from midstream.task.keyed import HASH_COLUMN
from midstream.task.report import TaskReport
from tests.engine.harness import Inbox, as_it_stands, canonical, preaggregated, run_available


@pytest.fixture
def in_epoch(spark: SparkSession) -> Iterator[None]:
    """The settings DataFrames of an epoch are planned with."""
    with SessionConf(spark, EPOCH_CONF):
        yield


@pytest.mark.parametrize("setting", [key for key, value in EPOCH_CONF.items() if value.startswith("org.apache.")])
def test_the_classes_the_settings_name_exist(spark: SparkSession, setting: str) -> None:
    loaded = spark._jvm.org.apache.spark.util.Utils.classForName(EPOCH_CONF[setting], True, False)  # type: ignore[union-attr]
    assert loaded.getName() == EPOCH_CONF[setting]


def test_the_query_runs_with_the_settings_and_the_session_without(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events, seen = inbox("k string"), []
    events.add(("a",))

    def look(df: DataFrame) -> DataFrame:
        seen.append({key: df.sparkSession.conf.get(key, None) for key in EPOCH_CONF})
        return df

    before = {key: spark.conf.get(key, None) for key in EPOCH_CONF}
    keyed = events.source().transform("look", look).key_by("k").aggregate("counts", n=F.count("*"))
    run_available(keyed.sink("out", ms.sinks.noop()), spark, tmp_path / "chk")
    # Once when the pipeline is analysed, once in the epoch.
    assert seen == [before, EPOCH_CONF]
    assert {key: spark.conf.get(key, None) for key in EPOCH_CONF} == before
    # Spark's default manager would leave checksums beside its logs.
    log = tmp_path / "chk" / "spark"
    assert (log / "commits" / "0").is_file()
    assert [file for folder in ("offsets", "commits") for file in (log / folder).glob(".*.crc")] == []


def test_offsets_of_an_epoch_are_there_while_it_runs(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events, chk, seen = inbox("k string"), tmp_path / "chk", {}
    for key in "ab":
        events.add((key,))
    sink = ms.sinks.for_each_epoch(lambda rows, epoch: seen.update({epoch: read_offsets(chk / "spark", epoch)}))
    run_available(events.source().sink("out", sink), spark, chk)
    assert sorted(seen) == [0, 1]
    for epoch, offsets in seen.items():
        assert offsets.startswith("v1\n")
        assert read_manifest(open_store(str(chk)), epoch).offsets == offsets


def two_partitions(spark: SparkSession) -> DataFrame:
    """Every key in both of two partitions, so that partly aggregated rows are more than groups."""
    rows = [
        ("a", 1, 1.5, True),
        ("b", 2, None, None),
        ("a", 3, 0.5, False),
        ("b", None, 2.0, True),
        (None, 5, 0.0, None),
    ]
    columns = "k string, v bigint, d double, f boolean"
    return spark.createDataFrame(spark.sparkContext.parallelize(rows + rows, 2), columns)


@pytest.mark.usefixtures("in_epoch")
@pytest.mark.parametrize(
    ("aggregates", "merge"),
    [
        (["count(1) AS a"], ["sum(a)"]),
        (["count(v) AS a", "sum(1L) AS b"], ["sum(a)", "sum(b)"]),
        (["sum(v) AS a", "sum(d) AS b"], ["sum(a)", "sum(b)"]),
        (["sum(v) FILTER (WHERE f) AS a", "sum(v) AS b"], ["sum(a)", "sum(b)"]),
        (["min(v) AS a", "max(d) AS b", "max(f) AS c"], ["min(a)", "max(b)", "max(c)"]),
        (["sum(v + 1) AS a", "count(v) AS b", "min(d) AS c"], ["sum(a)", "sum(b)", "min(c)"]),
    ],
    ids=str,
)
def test_the_part_of_an_aggregation_before_its_exchange(
    spark: SparkSession, aggregates: list[str], merge: list[str]
) -> None:
    grouped = two_partitions(spark).groupBy("k").agg(*map(F.expr, aggregates))
    partial = before_exchange(grouped)
    assert partial is not grouped
    assert partial.schema == grouped.schema
    assert "Exchange" not in partial._jdf.queryExecution().executedPlan().toString()
    rows = partial.toArrow()
    assert rows.num_rows == 2 * grouped.count() == 6
    merged = spark.createDataFrame(rows, grouped.schema).groupBy("k")  # type: ignore[call-overload]
    names = [text.rpartition(" ")[2] for text in aggregates]
    finished = merged.agg(*(F.expr(sql).alias(name) for sql, name in zip(merge, names, strict=True)))
    assert canonical(finished) == canonical(grouped)


@pytest.mark.usefixtures("in_epoch")
@pytest.mark.parametrize(
    "aggregates",
    [
        ["avg(v) AS a"],  # two columns of its own
        ["stddev(d) AS a"],
        ["first(v) AS a"],
        ["sum(CAST(v AS decimal(10,2))) AS a"],
        ["min(k) AS a"],  # sorted, not hashed
        ["collect_list(v) AS a"],
        ["sum(v) AS a", "sum(v) AS b"],  # Catalyst computes it once
    ],
    ids=str,
)
def test_aggregations_that_are_not_cut(spark: SparkSession, aggregates: list[str]) -> None:
    grouped = two_partitions(spark).groupBy("k").agg(*map(F.expr, aggregates))
    assert before_exchange(grouped) is grouped


@pytest.mark.usefixtures("in_epoch")
@pytest.mark.parametrize(
    "below",
    [
        lambda df: df.repartition("k"),
        lambda df: df.repartition(2, "k").sortWithinPartitions("v"),
        lambda df: df.groupBy("k").agg(F.max("v").alias("v"), F.count("*").alias("n")),
        lambda df: df.groupBy("k").agg(F.max("v").alias("v"), F.count("*").alias("n")).where("n > 0"),
        lambda df: df.join(df.groupBy("k").agg(F.count("*").alias("n")).hint("merge"), "k", "left"),
        lambda df: df.dropDuplicates(["k"]).withColumn("n", F.col("v")),
        lambda df: df.orderBy("v").withColumn("n", F.lit(1)),
    ],
    ids=["by key", "by key, sorted", "aggregated", "aggregated, filtered", "joined", "distinct", "ordered"],
)
def test_an_exchange_of_the_users_own_is_not_taken_for_the_one_of_the_aggregation(
    spark: SparkSession, below: Callable[[DataFrame], DataFrame]
) -> None:
    rows = below(two_partitions(spark))
    both = "v + coalesce(n, 0)" if "n" in rows.columns else "v + coalesce(d, 0)"
    # As many columns, of the same types, as the user's own rows may have.
    grouped = rows.groupBy("k").agg(F.expr(f"sum(CAST({both} AS bigint)) AS a"), F.expr("sum(1L) AS b"))
    partial = before_exchange(grouped)
    merged = spark.createDataFrame(partial.toArrow(), grouped.schema).groupBy("k")  # type: ignore[call-overload]
    assert canonical(merged.agg(F.sum("a").alias("a"), F.sum("b").alias("b"))) == canonical(grouped)


@pytest.mark.parametrize(
    "by_user", [lambda df: df.repartition("k"), lambda df: df.orderBy("v"), lambda df: df.distinct()]
)
def test_aggregates_behind_an_exchange_of_the_users_own(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], by_user: Callable[[DataFrame], DataFrame]
) -> None:
    events, sink = inbox("k string, v bigint, w bigint"), ms.sinks.memory()
    events.add(("a", 1, 10), ("a", 2, 20), ("b", 3, 30))
    events.add(("a", 4, 40), (None, 5, 50))
    counted = events.source().transform("by-user", by_user).key_by("k").aggregate("sums", s=F.sum(F.expr("v + w")))
    with preaggregated(lambda epoch: True):
        run_available(counted.sink("out", sink), spark, tmp_path / "chk")
    assert as_it_stands(sink, "k") == canonical(events.batch(spark).groupBy("k").agg(F.expr("sum(v + w) AS s")))


def test_rows_reach_the_partition_that_owns_their_hash(spark: SparkSession) -> None:
    ranges = even_ranges(5)
    hashed = spark.range(200).select("id", F.xxhash64("id").alias("h"))
    placed = hashed.repartitionById(5, F.expr(partition_sql("h", ranges)))
    for row in placed.select("h", F.spark_partition_id().alias("p")).collect():
        assert ranges[row.p].start <= row.h < ranges[row.p].end


def test_some_partitions_are_computed_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path)

    def leave_a_trace(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            Path(folder, str(batch.column(0)[0])).touch()
        yield from ()

    run_partitions(map_in_arrow(spark.range(0, 4, 1, 4), leave_a_trace, NOTHING), [1, 3])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]


@pytest.mark.parametrize("ranges", [even_ranges(7), ranges_from([HASH_MIN, -(2**62), 2**61])], ids=["even", "uneven"])
def test_a_rehearsed_exchange_compiles_nothing_more(spark: SparkSession, ranges: tuple[HashRange, ...]) -> None:
    def compiled() -> int:
        metrics = spark.sparkContext._jvm.org.apache.spark.metrics.source  # type: ignore[union-attr]
        return int(getattr(getattr(metrics, "CodegenMetrics$"), "MODULE$").METRIC_COMPILATION_TIME().getCount())

    def exchange(rows: DataFrame) -> None:
        hashed = spark._jsparkSession.internalCreateDataFrame(rows._jdf.queryExecution().toRdd(), shipped, False)
        run_job(exchanged(type(rows)(hashed, spark), ranges))

    with SessionConf(spark, {"spark.sql.adaptive.enabled": "false"}):
        values = "cast(id AS string) AS s", "id + 1 AS n", "if(id > 9, NULL, id) AS m", f"xxhash64(id) AS {HASH_COLUMN}"
        real = spark.range(0, 100, 1, 2).selectExpr(*values)
        shipped = real._jdf.schema()
        made_up = made_up_row(real.schema, [r.start for r in ranges])
        assert made_up is not None
        run_job(real)
        before = compiled()
        exchange(spark.range(0, 2 * len(ranges), 1, 2).select(*made_up))
        rehearsed = compiled()
        exchange(real)
    assert rehearsed > before
    assert compiled() == rehearsed


def test_columns_that_cannot_be_made_up_are_told(spark: SparkSession) -> None:
    schema = StructType([StructField(HASH_COLUMN, LongType(), False), StructField("when", DateType(), False)])
    assert made_up_row(schema, [0]) is None
    assert made_up_row(None, [0]) is None


def test_equal_values_have_equal_hashes(spark: SparkSession) -> None:
    pairs = ["-0.0d", "0.0d"], ["float(-0.0)", "float(0.0)"], ["double('NaN')", "-double('NaN')"]
    for one, other in pairs:
        for shape in ("{}", "array({})", "struct({} AS x)"):
            sql = f"SELECT xxhash64({shape.format(one)}) = xxhash64({shape.format(other)}) AS same"
            assert spark.sql(sql).head().same, sql  # type: ignore[union-attr]


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def test_map_in_arrow_keeps_the_columns_the_function_reads(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "x"), (2, "y")], "`a b` int, `c.d` string")
    mapped = map_in_arrow(frame, _pass_on, frame.schema, reads=frame.columns)
    assert mapped.schema == frame.schema
    assert canonical(mapped) == canonical(frame)
    assert canonical(mapped.select("`c.d`")) == canonical(frame.select("`c.d`"))
    assert mapped.count() == 2


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_reports_come_from_every_partition_before_the_job_returns(spark: SparkSession, rows: int) -> None:
    box, partitions = ReportBox.accumulating(spark.sparkContext), 7
    send, nothing = box.send, StructType.fromDDL("nothing int")

    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        arrived = sum(batch.num_rows for batch in batches)
        send(TaskReport("run", "step", context.partitionId(), "attempt", arrived, arrived, 0, 0, 0.0))
        return iter(())

    for _ in range(2):
        spread = spark.range(rows).repartition(partitions)
        run_job(map_in_arrow(spread, report, nothing))
        reports = box.drain("run", {"step": partitions})["step"]
        assert [report.partition for report in reports] == list(range(partitions))
        assert sum(report.rows for report in reports) == rows


def test_every_partition_of_a_keyed_step_reports_once(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[dict[str, list[TaskReport]]] = []
    drain = ReportBox.drain

    def keep(self: ReportBox, *arguments: Any) -> dict[str, list[TaskReport]]:
        drained.append(drain(self, *arguments))
        return drained[-1]

    monkeypatch.setattr(ReportBox, "drain", keep)
    events = inbox("k string, v bigint")
    events.add(("a", 1))
    events.add()
    keyed = events.source().key_by("k")
    flow = ms.pipeline(
        keyed.aggregate("changed", parallelism=5, n=F.count("*")).sink("one", ms.sinks.noop()),
        keyed.aggregate("complete", parallelism=3, output_mode="complete", n=F.count("*")).sink("two", ms.sinks.noop()),
    )
    run_available(flow, spark, tmp_path / "chk")
    assert len(drained) == 2
    for reports, rows in zip(drained, (1, 0), strict=True):
        assert len(reports["changed"]) == 5
        assert sorted(report.partition for report in reports["complete"]) == [0, 1, 2]
        for step in ("changed", "complete"):
            assert sum(report.rows for report in reports[step]) == rows
    assert sum(report.output_rows for report in drained[1]["complete"]) == 1
