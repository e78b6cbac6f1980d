"""Tasks that fail, die, dawdle or are run twice: attempts leave no trace but the one whose report is taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.reports import UnclearReportsError, one_per_partition, require_all
from midstream.errors import MidstreamError
from midstream.state.manifest import StagedFile
from midstream.state.segment import SegmentInfo
from midstream.state.store import open_store
from midstream.task.report import TableWrite, TaskReport
from tests.cluster.standalone import SPARK_HOME, spark_cluster
from tests.recovery.orders import segments_needed, segments_stored
from tests.recovery.processes import run_module
from tests.recovery.task_trouble import EPOCHS, KEYS, expected, write_input

# Each of these starts a Spark of its own, some with executors: seconds when nothing else runs, minutes otherwise.
pytestmark = pytest.mark.timeout(900)

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


def trouble(name: str, directory: Path, master: str, settings: dict[str, str]) -> None:
    """Run a program with troubled tasks and compare state and sinks with what they must be."""
    for folder in ("in", "marks"):
        (directory / folder).mkdir()
    write_input(directory)
    process = run_module(
        "tests.recovery.task_trouble",
        name,
        str(directory),
        master,
        json.dumps(settings),
        log=directory / "log",
        SPARK_HOME=str(SPARK_HOME),
    )
    assert process.wait(600) == 0, process.tail()
    result = json.loads((directory / "result.json").read_text())
    assert dict(result["state"]) == expected()
    assert dict(result["halves"]) == dict.fromkeys((0, 1), EPOCHS * KEYS // 2)
    for epoch in range(EPOCHS):
        rows = pq.read_table(directory / "out" / f"epoch={epoch}", partitioning=None).to_pylist()
        assert sorted(row["k"] for row in rows) == list(range(KEYS)), f"epoch {epoch}"
        assert {row["n"] for row in rows} == {(epoch + 1) * 10}


@pytest.mark.long
def test_attempts_that_fail_are_made_again(tmp_path: Path) -> None:
    """Every partition of every epoch fails at its first attempt, after it has read its state."""
    trouble("failing_once", tmp_path, "local[2,4]", {})
    assert len(list((tmp_path / "marks").glob("failed-*"))) == EPOCHS * 2


@pytest.mark.long
def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    trouble("dying_once", tmp_path, "local[2,4]", {})
    assert (tmp_path / "marks" / "died").exists()


@pytest.mark.long
def test_lost_executors_and_speculative_attempts(tmp_path: Path) -> None:
    """Lost shuffle files are made again by steps that had reported already; of two attempts that race one is taken."""
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as cluster:
        trouble("losing_executors_and_dawdling", tmp_path, cluster.url, SPECULATION)
    assert sorted(mark.name for mark in (tmp_path / "marks").iterdir()) == ["lost", "slow"], "nobody was overtaken"


@pytest.fixture
def numbers(tmp_path: Path) -> ms.Stream:
    """A source of two files, an epoch each."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.json").write_text("\n".join(json.dumps({"k": v % 5, "v": v}) for v in range(50)))

    def load(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("k bigint, v bigint").option("maxFilesPerTrigger", 1)
        return reader.json(str(folder))

    return ms.source("numbers", load)


def finished(flow: ms.Pipeline, spark: SparkSession, checkpoint: Path) -> dict[Any, Any]:
    run = flow.start(spark, str(checkpoint))
    run.process_available()
    run.stop()
    return {row["k"]: row["n"] for row in run.read_state("count").to_pylist()}


def counting(rows: ms.Stream, scatter: bool = False) -> ms.Stream:
    """Counts rows by key. When scattering, every attempt writes other state beside the counts."""

    def count(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        import random

        found = {row["k"]: row["n"] for row in state.to_pylist()}
        for key in rows.column("k").to_pylist():
            found[key] = found.get(key, 0) + 1
        noise = random.SystemRandom().random() if scatter else 0.0
        table = pa.Table.from_pylist([{"k": k, "n": n, "noise": noise} for k, n in found.items()])
        return table.select(["k", "n"]), table

    return rows.key_by("k").stateful("count", count, state="n bigint, noise double", output="k bigint, n bigint")


def test_a_step_that_is_read_twice_by_a_join_counts_once(
    spark: SparkSession, numbers: ms.Stream, tmp_path: Path
) -> None:
    """A self-join runs the state task twice in one epoch; both attempts say the same, so either will do."""
    sink = ms.sinks.memory()
    joined = counting(numbers).transform("self", lambda df: df.alias("a").join(df.alias("b"), "k").select("k", "b.n"))
    assert finished(joined.sink("out", sink), spark, tmp_path / "chk") == dict.fromkeys(range(5), 20)
    assert sorted(row["n"] for row in sink.to_pylist()) == [10] * 5 + [20] * 5


def test_conflicting_attempts_are_run_with_care(spark: SparkSession, numbers: ms.Stream, tmp_path: Path) -> None:
    """Two attempts that do not agree: the epoch is run again and the step's output kept, so that it runs once."""
    sink = ms.sinks.memory()
    noisy = counting(numbers, scatter=True)
    joined = noisy.transform("self", lambda df: df.alias("a").join(df.alias("b"), "k").select("k", "b.n"))
    assert finished(joined.sink("out", sink), spark, tmp_path / "chk") == dict.fromkeys(range(5), 20)
    assert sorted(row["n"] for row in sink.to_pylist()) == [10] * 5 + [20] * 5


@pytest.mark.parametrize("above", ["false", "limit", "other columns"])
def test_state_is_written_whatever_is_read_of_the_output(
    above: str, spark: SparkSession, numbers: ms.Stream, tmp_path: Path
) -> None:
    """Catalyst leaves out what a query does not need. State is always needed."""
    less = {
        "false": lambda df: df.where("false"),
        "limit": lambda df: df.limit(1),
        "other columns": lambda df: df.select(F.lit(1).alias("one")),
    }[above]
    flow = counting(numbers).transform("less", less).sink("out", ms.sinks.noop())
    assert finished(flow, spark, tmp_path / "chk") == dict.fromkeys(range(5), 20)


def test_steps_run_together_keep_to_their_own_partitions(
    spark: SparkSession, numbers: ms.Stream, tmp_path: Path
) -> None:
    """Spark counts the partitions of all steps of a stage together; some of these have no rows."""
    sinks = {name: ms.sinks.memory() for name in ("by_key", "complete", "all_rows")}
    by_key = numbers.key_by("k").aggregate("by_key", n=F.count("*"), parallelism=7)
    complete = numbers.key_by("v").aggregate("complete", n=F.count("*"), parallelism=5, output_mode="complete")
    both = counting(numbers).union("both", by_key)
    flow = ms.pipeline(
        numbers.sink("all_rows", sinks["all_rows"]),
        by_key.sink("by_key_out", sinks["by_key"]),
        complete.sink("complete_out", sinks["complete"]),
        both.sink("both_out", ms.sinks.noop()),
    )
    assert finished(flow, spark, tmp_path / "chk") == dict.fromkeys(range(5), 20)
    assert sorted(row["n"] for row in sinks["by_key"].to_pylist()) == [10] * 5 + [20] * 5
    assert sorted(row["n"] for row in sinks["complete"].to_pylist()) == [2] * 50
    assert len(sinks["all_rows"].to_pylist()) == 100


def test_state_written_in_vain_is_collected(spark: SparkSession, numbers: ms.Stream, tmp_path: Path) -> None:
    """An attempt that fails after it has written its segment leaves an orphan, until the next start."""
    flow = counting(numbers).sink("out", ms.sinks.noop())
    finished(flow, spark, tmp_path / "chk")
    store = open_store(str(tmp_path / "chk"))
    orphan = next((tmp_path / "chk").glob("segments/count/state/*.seg"))
    copy = orphan.with_name(orphan.name.replace(orphan.name[-36:-4], "0" * 32))
    copy.write_bytes(orphan.read_bytes())
    assert segments_stored(store) != segments_needed(store)
    finished(flow, spark, tmp_path / "chk")
    assert segments_stored(store) == segments_needed(store)


REPORT = TaskReport(
    run="run",
    step="count",
    partition=0,
    attempt="a",
    rows=10,
    arrived=10,
    groups=2,
    output_rows=2,
    milliseconds=1.0,
    tables={"state": TableWrite(SegmentInfo("a.seg", 2, 0, 99, 1, 2, 0, 0, 0, "same content"), added=2, removed=0)},
    staged={"out": StagedFile("a.parquet", 2, 50)},
)


def other_attempt(**changes: Any) -> TaskReport:
    assert REPORT.tables["state"].segment is not None
    segment = replace(REPORT.tables["state"].segment, path="b.seg")
    tables = {"state": replace(REPORT.tables["state"], segment=segment)}
    staged = {"out": StagedFile("b.parquet", 2, 50)}
    return replace(REPORT, attempt="b", milliseconds=9.0, tables=tables, staged=staged, **changes)


def test_of_equal_reports_one_is_taken_whole() -> None:
    """Its segments and its staged files belong together: never some of one and some of the other."""
    partition = other_attempt(partition=1)
    for order in ([REPORT, other_attempt(), partition], [other_attempt(), partition, REPORT]):
        taken = one_per_partition(order)["count"]
        assert taken == [order[0], partition]


def conflicts() -> Iterator[TaskReport]:
    yield other_attempt(rows=11)
    yield other_attempt(groups=3)
    yield other_attempt(output_rows=3)
    yield replace(other_attempt(), staged={"out": StagedFile("b.parquet", 2, 51)})
    yield replace(other_attempt(), staged={})
    yield replace(other_attempt(), tables={})
    written = other_attempt().tables["state"]
    assert written.segment is not None
    changed = replace(written.segment, checksum="other content")
    for other in (replace(written, added=1), replace(written, segment=changed), replace(written, delete_below=5)):
        yield replace(other_attempt(), tables={"state": other})


@pytest.mark.parametrize("other", list(conflicts()))
def test_reports_that_differ_are_a_conflict(other: TaskReport) -> None:
    with pytest.raises(UnclearReportsError) as raised:
        one_per_partition([REPORT, other])
    error = raised.value.reason
    assert error.error_class == "NOT_DETERMINISTIC"
    assert "Partition 0 of step 'count'" in error.message
    assert error.hint


def test_a_partition_without_a_report_is_missed() -> None:
    reports = one_per_partition([REPORT, replace(REPORT, partition=-3, rows=0, tables={}, staged={})])
    require_all(reports, {"count": 2})
    with pytest.raises(UnclearReportsError) as raised:
        require_all(reports, {"count": 3})
    assert isinstance(raised.value.reason, MidstreamError)
    assert "2 of the 3 partitions of step 'count'" in raised.value.reason.message
