"""Settings tuned while the pipeline runs."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream.engine.capped import CappedSession
from midstream.errors import MidstreamError
from tests.modify.live import Live
from tests.modify.test_apply import sums


def test_arrow_batches(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    assert live.change(ms.Tune(arrow_batch_rows=7), ("a", 1)) == [{"k": "a", "n": 2, "s": 2}]
    assert live.run._runner._arrow_batch_rows == 7
    live.undo()
    live.epoch(("a", 1))
    assert live.run._runner._arrow_batch_rows == 65_536


def test_the_trigger_interval(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    verdict = live.run.plan(ms.Tune(trigger_seconds=2))
    assert verdict.hand_over
    live.change(ms.Tune(trigger_seconds=2), ("a", 1))
    for _ in range(3):
        live.epoch(("a", 1))
    started = [epoch.started_at.timestamp() for epoch in live.run.epochs()[-3:]]
    assert min(b - a for a, b in pairwise(started)) > 1.5
    assert live.output(live.run.last_epoch) == [{"k": "a", "n": 5, "s": 5}]


def test_rows_per_epoch(live: Live) -> None:
    """A cap on rows is one on files, by the rows a file of the last epoch had."""
    live.start(sums(live), *[("a", 1)] * 10)
    live.change(ms.Tune(rows_per_epoch=35), *[("a", 1)] * 10)
    live.run.stop()
    for _ in range(6):
        live.events.add(*[("a", 1)] * 10)
    live.start(sums(live))
    live.run.process_available()
    assert [epoch.rows for epoch in live.run.epochs()] == [30, 30]
    assert live.run.read_result("sums").to_pylist() == [{"k": "a", "n": 80, "s": 80}]


@pytest.mark.parametrize(
    ("tune", "expected"),
    [
        (ms.Tune(), "NOTHING_TUNED"),
        (ms.Tune(trigger_seconds=-1), "BAD_SETTING.*trigger_seconds is -1"),
        (ms.Tune(rows_per_epoch=0), "BAD_SETTING"),
        (ms.Tune(arrow_batch_rows=0), "BAD_SETTING"),
        (ms.Tune("clean", compaction=ms.CompactionPolicy()), "WRONG_KIND_OF_STEP"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense(live: Live, tune: ms.Tune, expected: str) -> None:
    live.start(sums(live), ("a", 1))
    with pytest.raises(MidstreamError, match=f"(?s){expected}"):
        live.run.plan(tune)


def test_a_run_that_ends_by_itself_has_no_interval(live: Live) -> None:
    for _ in range(20):
        live.events.add(("a", 1))
    live.start(sums(live), trigger={"availableNow": True})
    with pytest.raises(MidstreamError, match="TRIGGER_ENDS_BY_ITSELF"):
        live.run.plan(ms.Tune(trigger_seconds=1))
    assert live.run.await_termination(60)


def test_merging_is_tuned_from_the_next_commit_on(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    live.change(ms.Tune("sums", compaction=ms.CompactionPolicy(deltas=2)), ("a", 1))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        live.epoch(("a", 1))
        if any(s.level for s in live.run._runner.last.steps["sums"].tables["main"].segments):
            break
    assert any(s.level for s in live.run._runner.last.steps["sums"].tables["main"].segments)


def capped(spark: SparkSession, per_file: float | None = None) -> Any:
    return CappedSession(spark, "x", 100, per_file)


def test_the_option_of_every_format(spark: SparkSession) -> None:
    assert capped(spark, 30).option_for("json") == ("maxFilesPerTrigger", 3)
    assert capped(spark, 1000).option_for("parquet") == ("maxFilesPerTrigger", 1)
    assert capped(spark).option_for("kafka") == ("maxOffsetsPerTrigger", 100)
    with pytest.raises(MidstreamError, match=r"ROWS_CANNOT_BE_CAPPED.*no epoch tells"):
        capped(spark).option_for("json")
    with pytest.raises(MidstreamError, match=r"ROWS_CANNOT_BE_CAPPED.*it reads 'rate'"):
        capped(spark).option_for("rate")


def test_a_cap_takes_the_place_of_the_sources_own(spark: SparkSession, tmp_path: Path) -> None:
    sizes: list[int] = []
    frame: DataFrame = capped(spark).readStream.format("rate-micro-batch").option("rowsPerBatch", 7).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    deadline = time.monotonic() + 60
    while not sizes and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()
    assert sizes[0] == 100


def test_a_source_that_reads_through_another_session_cannot_be_capped(live: Live) -> None:
    spark, inbox = live.spark, live.events
    inbox.directory.mkdir(parents=True)
    own = ms.source("events", lambda _: spark.readStream.schema(inbox.schema).parquet(str(inbox.directory)))
    live.start(own.sink("out", live.sink), ("a", 1))
    with pytest.raises(MidstreamError, match=r"ROWS_CANNOT_BE_CAPPED.*another session"):
        live.run.plan(ms.Tune(rows_per_epoch=10))
