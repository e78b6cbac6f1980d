"""Steps with windows changed while windows are open."""

from __future__ import annotations

import random
import time
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

    def change(self, change: Any, **options: Any) -> None:
        """Apply a change with an epoch."""
        submitted = self.run.apply(change, wait=False, **options)
        deadline = time.monotonic() + 60
        while self.run.modification(submitted.id).phase in (Phase.PROPOSED, Phase.VALIDATED, Phase.PREPARING):
            assert time.monotonic() < deadline
            time.sleep(0.02)
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
