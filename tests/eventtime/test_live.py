"""Steps with windows changed while windows are open."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from tests.engine.harness import Inbox
from tests.eventtime.oracle import START, Row, Sessions, Windows, flat
from tests.eventtime.test_windows import SCHEMA, Inboxes, counts, events, fill, given


class Stage:
    """A run that gets one epoch of rows at a time, up to five seconds out of order."""

    def __init__(self, spark: SparkSession, flow: ms.Pipeline, inbox: Inbox, checkpoint: Path) -> None:
        self._inbox, self._chance = inbox, random.Random(2)
        self.epochs: list[list[Row]] = []
        self.run = flow.start(spark, str(checkpoint))

    def epoch(self) -> None:
        start = 15 * len(self.epochs)
        rows: list[Row] = [(self._chance.choice("abc"), start + self._chance.randint(0, 19), 1) for _ in range(20)]
        self.epochs.append(rows)
        fill(self._inbox, [rows])
        self.run.process_available()

    def settle(self, id: int) -> None:
        """Wait until a change waits for the next epoch, or has ended."""
        deadline = time.monotonic() + 60
        while self.run.modification(id).phase in (Phase.PROPOSED, Phase.VALIDATED, Phase.PREPARING):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def change(self, change: Any, **options: Any) -> None:
        """Apply a change with an epoch."""
        submitted = self.run.apply(change, wait=False, **options)
        self.settle(submitted.id)
        self.epoch()
        done = self.run.modification(submitted.id)
        assert done.phase is Phase.APPLIED, done


def test_other_partitions_and_another_undone(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    flow = counts(events(events_in, "5 seconds"), ms.sliding("30 seconds", "10 seconds")).sink("out", sink)
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    stage.epoch()
    for change in (ms.Rescale("counts", 3), ms.Rescale("counts", 1), ms.Rebalance("counts", 2)):
        stage.change(change)
        stage.epoch()
    submitted = stage.run.undo(wait=False)
    stage.settle(submitted.id)
    stage.epoch()
    stage.epoch()
    assert stage.run.modification(submitted.id).phase is Phase.APPLIED
    stage.run.stop()
    oracle = Windows(30, 10, delay=5)
    assert given(sink) == flat([oracle.epoch(rows) for rows in stage.epochs])


@pytest.mark.long
def test_sessions_with_other_partitions(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    keyed = events(events_in, "5 seconds").key_by("k").window(ms.session("3 seconds"))
    flow = keyed.aggregate("sessions", parallelism=2, n=F.count("*"), total=F.sum("v")).sink("out", sink)
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    stage.epoch()
    stage.change(ms.Rescale("sessions", 3))
    stage.epoch()
    stage.run.stop()
    oracle = Sessions(3, delay=5)
    assert given(sink) == flat([oracle.epoch(rows) for rows in stage.epochs])


def test_sessions_that_sum_something_else(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """What is kept of open sessions is not taken for what another aggregate wants."""
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    keyed = events(events_in, "5 seconds").key_by("k").window(ms.session("3 seconds"))
    flow = keyed.aggregate("sessions", parallelism=2, n=F.count("*"), total=F.sum("v")).sink("out", sink)
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    stage.epoch()
    first = stage.run.last_epoch + 1
    hundreds = {"n": F.count("*"), "total": F.sum(F.expr("v * 100"))}
    stage.change(ms.Replace("sessions", aggregate=hundreds), allow_state_loss=True)
    stage.epoch()
    stage.run.stop()
    oracle = Sessions(3, delay=5)
    expected = [oracle.epoch(rows) for rows in stage.epochs]
    counted = {(key, start): n for epoch in expected for (key, start), (n, _) in epoch.items()}
    given_since = [row for epoch, table in sink.epochs.items() if epoch >= first for row in table.to_pylist()]
    assert given_since
    for row in given_since:
        assert row["n"] == counted[row["k"], int((row["window_start"] - START).total_seconds())]
        assert (row["total"] or 0) % 100 == 0, row
    assert any((row["total"] or 0) < 100 * row["n"] for row in given_since), "a session was open at the change"


def test_windows_that_are_put_in_and_taken_out(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """A step that is put in begins with the rows of its first epoch."""
    events_in, sink, more = inbox(SCHEMA), ms.sinks.memory(), ms.sinks.memory()
    flow = counts(events(events_in, "5 seconds"), ms.tumbling("10 seconds")).sink("out", sink)
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    stage.epoch()
    put_in = ms.Insert(
        "wide",
        after="events",
        branch=True,
        key_by="k",
        window=ms.tumbling("20 seconds"),
        aggregate={"n": F.count("*"), "total": F.sum("v")},
    )
    stage.change(ms.ChangeSet([put_in, ms.Insert("more", after="wide", sink=more)]))
    first = len(stage.epochs) - 1
    stage.epoch()
    stage.epoch()
    stage.change(ms.Remove("more"), allow_state_loss=True)
    last = len(stage.epochs) - 1
    stage.epoch()
    stage.run.stop()
    oracle = Windows(10, 10, delay=5)
    assert given(sink) == flat([oracle.epoch(rows) for rows in stage.epochs])
    # What is over when it begins is known from the sources, so that rows of windows before it are late.
    added = Windows(20, 20, delay=5)
    added.epoch(stage.epochs[0])
    added.state.clear()
    found = [{}] * first + [added.epoch(rows) for rows in stage.epochs[first:last]]
    assert given(more) == flat(found)


@pytest.mark.long
def test_other_windows(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """Those that are open take no more rows, and give what they have when they are over."""
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    flow = counts(events(events_in, "5 seconds"), ms.tumbling("40 seconds")).sink("out", sink)
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    stage.epoch()
    stage.change(ms.Replace("counts", window=ms.tumbling("10 seconds")))
    for _ in range(3):
        stage.epoch()
    stage.run.stop()
    wide = Windows(40, 40, delay=5)
    wide.epoch(stage.epochs[0])
    by_key = {key: n for (key, start), (n, _) in wide.state.items() if start == 0}
    ours = {row["k"]: row["n"] for row in sink.to_pylist() if _seconds(row) == 40 and _start(row) == 0}
    assert ours == by_key
    narrow = Windows(10, 10, delay=5)
    narrow.epoch(stage.epochs[0])
    narrow.state.clear()
    expected = [narrow.epoch(epoch) for epoch in stage.epochs[1:]]
    found = {(row["k"], _start(row)): row["n"] for row in sink.to_pylist() if _seconds(row) == 10}
    assert found == {key: n for given_ in expected for key, (n, _) in given_.items()}


def _seconds(row: dict[str, Any]) -> int:
    return int((row["window_end"] - row["window_start"]).total_seconds())


def _start(row: dict[str, Any]) -> int:
    return int((row["window_start"] - START).total_seconds())


def test_open_windows_drained_before_their_step_goes(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """In the epoch before the change they give what they have; rows that come later are those of the step's input."""
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    flow = counts(events(events_in), ms.tumbling("60 seconds"))
    named = flow.sql("named", "SELECT k, n FROM input").sink("out", sink)
    stage = Stage(spark, named, events_in, tmp_path / "chk")
    stage.epoch()
    stage.epoch()
    assert sink.to_pylist() == []
    verdict = stage.run.plan(ms.Replace("counts", window=ms.tumbling("10 seconds"), on_open_windows="drain"))
    assert "give what they have first" in str(verdict)
    assert not verdict.losses
    # The first epoch drains, with its own rows; the change comes with the second.
    submitted = stage.run.apply(ms.Remove("counts", on_open_windows="drain"), wait=False)
    stage.settle(submitted.id)
    refused = stage.run.modification(submitted.id)
    assert refused.phase is Phase.REJECTED, "what reads it needs its columns"
    submitted = stage.run.apply(
        ms.ChangeSet(
            [
                ms.Remove("counts", on_open_windows="drain"),
                ms.Replace("named", sql="SELECT k, CAST(1 AS BIGINT) AS n FROM input"),
            ]
        ),
        wait=False,
    )
    stage.settle(submitted.id)
    stage.epoch()
    assert stage.run.modification(submitted.id).phase is Phase.WAITING
    drained = sum(row["n"] for row in sink.to_pylist())
    assert drained == sum(len(rows) for rows in stage.epochs)
    stage.epoch()
    assert stage.run.modification(submitted.id).phase is Phase.APPLIED
    stage.run.stop()
    assert sum(row["n"] for row in sink.to_pylist()) == sum(len(rows) for rows in stage.epochs)


def test_steps_of_every_kind_are_built_in(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink, best = inbox(SCHEMA), ms.sinks.memory(), ms.sinks.memory()
    flow = events(events_in, "5 seconds").sql("all", "SELECT * FROM input").sink("out", sink)
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    stage.epoch()
    stage.change(
        ms.ChangeSet(
            [
                ms.Insert("once", after="all", build=lambda rows: rows.key_by("k", "at").dedup("once")),
                ms.Insert("best", after="all", branch=True, build=lambda rows: rows.key_by("k").top("best", 2, "at")),
                ms.Insert("best-out", after="best", sink=best),
            ]
        )
    )
    stage.change(ms.Replace("best", build=lambda rows: rows.key_by("k").top("best", 1, "at")), allow_state_loss=True)
    for change in (ms.Rescale("best", 3), ms.Rescale("once", 1)):
        stage.change(change)
    stage.run.stop()
    seen = {(k, time) for rows in stage.epochs[1:] for k, time, _ in rows}
    later = [(r["k"], (r["at"] - START).total_seconds()) for e, t in sink.epochs.items() if e for r in t.to_pylist()]
    assert sorted(later) == sorted(set(later)), "each only once"
    assert set(later) == seen
    last = {(row["k"], row["rank"]): (row["at"] - START).total_seconds() for row in _in_order(best)}
    newest = {k: max(time for rows in stage.epochs[1:] for key, time, _ in rows if key == k) for k in "abc"}
    assert {k: last[k, 1] for k in "abc"} == newest


def _in_order(sink: Any) -> list[dict[str, Any]]:
    return [row for _, table in sorted(sink.epochs.items()) for row in table.to_pylist()]


@pytest.mark.long
def test_a_join_is_built_in_and_taken_out(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink, pairs = inbox(SCHEMA), ms.sinks.memory(), ms.sinks.memory()
    rows = events(events_in, "5 seconds").sql("all", "SELECT * FROM input")
    flow = ms.pipeline(
        rows.sink("out", sink), rows.sql("names", "SELECT k, at AS named_at FROM input").sink("n", ms.sinks.memory())
    )
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    stage.epoch()
    window = ms.tumbling("20 seconds")

    def joined(left: ms.Stream, right: ms.Stream) -> ms.Stream:
        return left.join("pairs", right, "k", window=window, times=("at", "named_at"))

    stage.change(
        ms.ChangeSet(
            [
                ms.Insert("pairs", after="all", branch=True, reads=["names"], build=joined),
                ms.Insert("pairs-out", after="pairs", sink=pairs),
            ]
        )
    )
    stage.epoch()
    stage.change(ms.Rescale("pairs", 3))
    stage.epoch()
    found = sorted((r["k"], r["window_start"]) for r in _in_order(pairs))
    expected = []
    watermark = max(time for epoch in stage.epochs for _, time, _ in epoch if time is not None) - 5
    for start in range(0, watermark - 20 + 1, 20):
        for k in "abc":
            n = sum(key == k and start <= time < start + 20 for epoch in stage.epochs[1:] for key, time, _ in epoch)
            expected += [(k, START + timedelta(seconds=start))] * n * n
    assert found == sorted(expected)
    stage.change(ms.Remove("pairs-out"), allow_state_loss=True)
    assert "pairs" not in [step.id for step in stage.run.graph().steps]
    stage.run.stop()


def test_builds_that_make_no_step(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in = inbox(SCHEMA)
    flow = events(events_in).sql("all", "SELECT * FROM input").sink("out", ms.sinks.memory())
    stage = Stage(spark, flow, events_in, tmp_path / "chk")
    for build, told in (
        (lambda rows: rows.key_by("k").dedup("other"), "a step named 'other'"),
        (lambda rows: 7, "gave a int"),
        (lambda rows: rows.sql("x", "SELECT 1").key_by("k").dedup("new"), "several steps"),
        (lambda rows: rows.nothing(), "AttributeError"),
    ):
        with pytest.raises(ms.MidstreamError, match=rf"BAD_STEP.*{told}"):
            stage.run.plan(ms.Insert("new", after="all", build=build))
    stage.run.stop()


def test_a_source_that_goes_silent_holds_nobody_back(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """Its watermark stands still; when it has been silent for long enough, an epoch without rows finds that out."""
    busy, silent, sink = inbox(SCHEMA, "busy"), inbox(SCHEMA, "silent"), ms.sinks.memory()

    def stream(id: str, given_in: Inbox) -> ms.Stream:
        given_in.directory.mkdir()
        directory = str(given_in.directory)
        return ms.source(
            id,
            lambda spark: spark.readStream.schema(SCHEMA).parquet(directory),
            event_time="at",
            idle_after="1 second",
        )

    both = stream("busy", busy).union("both", stream("silent", silent))
    run = counts(both, ms.tumbling("10 seconds")).sink("out", sink).start(spark, str(tmp_path / "chk"))
    fill(busy, [[("a", 1, 1)]])
    fill(silent, [[("a", 2, 1)]])
    run.process_available()
    fill(busy, [[("a", 25, 1)]])
    run.process_available()
    # Whether the silent source is idle by now depends on how long that took; no rows come that would tell.
    deadline = time.monotonic() + 60
    while not sink.to_pylist():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [(row["k"], row["n"]) for row in sink.to_pylist()] == [("a", 2)]
    run.stop()
