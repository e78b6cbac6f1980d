"""A pipeline from its start to its end: epochs, restarts, and what the handle on it tells."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.epochs import EpochReport
from midstream.errors import CheckpointError, MidstreamError
from tests.engine.harness import Inbox, as_it_stands, canonical, run_available

SCHEMA = "k string, v bigint"


def counts(events: Inbox, sink: ms.sinks.Sink) -> ms.Pipeline:
    counted = events.source().key_by("k").aggregate("counts", n=F.count("*"), total=F.sum("v"))
    return counted.sink("out", sink)


def test_the_example_of_the_readme(spark: SparkSession, tmp_path: Path) -> None:
    orders_in, out = tmp_path / "in", tmp_path / "out"
    orders_in.mkdir()
    amounts = [("ada", 10.0), ("bob", -1.0), ("ada", 2.5), ("eve", 4.0), (None, 1.0)]
    lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in amounts]
    (orders_in / "1.json").write_text("\n".join(lines))

    orders = ms.source(
        "orders", lambda spark: spark.readStream.schema("customer string, amount double").json(str(orders_in))
    )
    clean = orders.transform("clean", lambda df: df.where("amount > 0"))
    totals = clean.key_by("customer").aggregate("totals", n=F.count("*"), spent=F.sum("amount"))
    flow = totals.sink("out", ms.sinks.parquet(out))
    run = flow.start(spark, checkpoint=str(tmp_path / "chk"))
    run.process_available()
    run.stop()

    written = spark.read.parquet(str(out)).where("epoch = 0").drop("epoch")
    assert canonical(run.read_result("totals")) == canonical(written)
    batch = spark.read.schema("customer string, amount double").json(str(orders_in)).where("amount > 0")
    expected = batch.groupBy("customer").agg(F.count("*").alias("n"), F.sum("amount").alias("spent"))
    assert canonical(written) == canonical(expected)
    assert run.status == "stopped"


def test_a_restart_goes_on_where_it_was(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events, sink = inbox(SCHEMA), ms.sinks.memory()
    for start in range(3):
        events.add(("a", start), ("b", 1))
        events.add(("a", 10), (f"new{start}", 1))
        run = run_available(counts(events, sink), spark, tmp_path / "chk")
        assert [report.epoch for report in run.epochs()] == [2 * start, 2 * start + 1]
        assert run.last_epoch == 2 * start + 1
    expected = events.batch(spark).groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    assert as_it_stands(sink, "k") == canonical(expected)
    assert sorted(sink.epochs) == list(range(6))


def test_a_start_without_new_input_makes_no_epoch(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events = inbox(SCHEMA)
    events.add(("a", 1))
    run_available(counts(events, ms.sinks.noop()), spark, tmp_path / "chk")
    run = run_available(counts(events, ms.sinks.noop()), spark, tmp_path / "chk")
    assert run.epochs() == []
    assert run.last_epoch == 0
    assert run.read_state("counts").num_rows == 1


def test_what_an_epoch_reports(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events = inbox(SCHEMA)
    events.add(("a", 1), ("a", 2), ("b", 3))
    events.add(("a", 4), ("c", 5))
    run = run_available(counts(events, ms.sinks.noop()), spark, tmp_path / "chk")
    first, second = run.epochs()
    assert run.epochs(last=1) == [second]
    assert (first.epoch, second.epoch) == (0, 1)
    assert (first.rows, second.rows) == (3, 2)
    assert (first.state_rows, second.state_rows) == (2, 3)
    step = second.steps["counts"]
    assert (step.rows, step.keys, step.output_rows, step.state_rows) == (2, 2, 2, 3)
    assert 0 <= step.median_ms <= step.slowest_ms > 0
    assert second.state_bytes > first.state_bytes > 0
    assert second.written_bytes > 0
    assert second.duration_ms >= sum(second.phases_ms.values()) > 0
    assert set(second.phases_ms) == {"run", "commit", "finalise"}
    assert second.plan == 1


def test_on_epoch_is_called_after_each_commit(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events = inbox(SCHEMA)
    run = counts(events, ms.sinks.noop()).start(spark, str(tmp_path / "chk"))
    seen: list[tuple[EpochReport, int]] = []
    run.on_epoch(lambda report: seen.append((report, run.read_state("counts").num_rows)))
    for name in "ab":
        events.add((name, 1))
        run.process_available()
    run.stop()
    assert [(report.epoch, rows) for report, rows in seen] == [(0, 1), (1, 2)]
    assert [report for report, _ in seen] == run.epochs()


def test_state_at_the_last_and_at_earlier_epochs(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events = inbox(SCHEMA)
    for v in (1, 2, 3):
        events.add(("a", v))
    run = run_available(counts(events, ms.sinks.noop()), spark, tmp_path / "chk")
    totals = [run.read_state("counts", epoch=epoch)["sum(v)"].to_pylist() for epoch in range(3)]
    assert totals == [[1], [3], [6]]
    assert run.read_state("counts").equals(run.read_state("counts", "main", 2))
    assert run.read_state("counts").column_names[0] == "k"


def test_state_that_does_not_exist(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events = inbox(SCHEMA)
    events.add(("a", 1))
    run = run_available(counts(events, ms.sinks.noop()), spark, tmp_path / "chk")
    with pytest.raises(CheckpointError, match="no keyed step 'count'"):
        run.read_state("count")
    with pytest.raises(CheckpointError, match="no table 'side' of step 'counts'"):
        run.read_state("counts", "side")
    with pytest.raises(CheckpointError, match=r"(?s)no epoch 7.*epochs 0 to 0"):
        run.read_state("counts", epoch=7)
    with pytest.raises(CheckpointError, match="no aggregate step 'out'"):
        run.read_result("out")


def test_status_from_start_to_stop(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events = inbox(SCHEMA)
    run = counts(events, ms.sinks.noop()).start(spark, str(tmp_path / "chk"), name="counting")
    assert (run.status, run.last_epoch, run.exception) == ("starting", -1, None)
    assert run.query.name == "counting"
    assert run.await_termination(timeout=0.1) is False
    events.add(("a", 1))
    run.process_available()
    assert (run.status, run.last_epoch) == ("running", 0)
    run.stop()
    assert (run.status, run.exception) == ("stopped", None)
    assert run.await_termination() is True
    run.stop()


def test_stop_commits_the_epoch_under_way(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events = inbox(SCHEMA)
    begun, sink = threading.Event(), ms.sinks.memory()

    def slowly(rows: object, epoch: int) -> None:
        begun.set()
        time.sleep(1)

    counted = events.source().key_by("k").aggregate("counts", n=F.count("*"))
    flow = ms.pipeline(counted.sink("slow", ms.sinks.for_each_epoch(slowly)), counted.sink("out", sink))
    run = flow.start(spark, str(tmp_path / "chk"))
    events.add(("a", 1))
    assert begun.wait(60)
    run.stop()
    assert (run.status, run.last_epoch) == ("stopped", 0)
    assert sink.to_pylist() == [{"k": "a", "n": 1}]


def test_an_error_ends_the_run_and_is_told_everywhere(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events = inbox(SCHEMA)
    events.add(("a", 1))

    def fails(rows: object, epoch: int) -> None:
        raise RuntimeError("no room on the shelf")

    run = counts(events, ms.sinks.for_each_epoch(fails)).start(spark, str(tmp_path / "chk"))
    with pytest.raises(MidstreamError, match=r"EPOCH_FUNCTION_FAILED.*no room on the shelf") as raised:
        run.process_available()
    with pytest.raises(MidstreamError, match="no room on the shelf"):
        run.await_termination(10)
    assert run.status == "failed"
    assert run.exception is not None
    assert str(run.exception) == str(raised.value)
    run.stop()


def test_what_is_no_session_is_refused(tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    class Other:
        pass

    with pytest.raises(MidstreamError, match=r"NO_SESSION.*Other"):
        counts(inbox(SCHEMA), ms.sinks.noop()).start(Other(), str(tmp_path / "chk"))  # type: ignore[arg-type]
    assert not (tmp_path / "chk").exists()


@pytest.mark.parametrize("given", [0, -1])
def test_at_least_one_epoch_is_retained(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], given: int
) -> None:
    with pytest.raises(MidstreamError, match="BAD_RETENTION"):
        counts(inbox(SCHEMA), ms.sinks.noop()).start(spark, str(tmp_path / "chk"), retain_epochs=given)


def test_the_settings_of_the_session_stay_as_they_were(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    before = {row.key: row.value for row in spark.sql("SET").collect()}
    events = inbox(SCHEMA)
    events.add(("a", 1))
    run_available(counts(events, ms.sinks.noop()), spark, tmp_path / "chk")
    assert {row.key: row.value for row in spark.sql("SET").collect()} == before


def test_a_checkpoint_may_be_a_url(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events = inbox(SCHEMA)
    events.add(("a", 1))
    run_available(counts(events, ms.sinks.noop()), spark, f"file://{tmp_path}/chk")
    assert (tmp_path / "chk" / "manifests" / "000000000000.json").is_file()
