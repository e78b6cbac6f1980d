"""Rows without their repetitions."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import midstream as ms
from tests.engine.harness import run_available
from tests.eventtime.oracle import START, at
from tests.eventtime.test_windows import SCHEMA, Inboxes, events, fill


def test_repetitions_are_left_out_and_forgotten(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    fill(
        events_in,
        [
            [("a", 5, 1), ("a", 3, 2), ("b", 4, 3), ("a", None, 4)],  # the earliest; one without a time is left out
            [("a", 6, 5), ("b", 4, 6), (None, 7, 7), (None, 8, 8)],
            [("c", 100, 9)],
            [("a", 2, 10), ("a", 101, 11)],  # too late; and a new one, for the first is forgotten
            [],
        ],
    )
    once = events(events_in, "10 seconds").key_by("k").dedup("once", parallelism=2)
    run = run_available(once.sink("out", sink), spark, tmp_path / "chk")
    found = sorted(
        (epoch, str(row["k"]), int((row["at"] - START).total_seconds()), row["v"])
        for epoch, table in sink.epochs.items()
        for row in table.to_pylist()
    )
    assert found == [(0, "a", 3, 2), (0, "b", 4, 3), (1, "None", 7, 7), (2, "c", 100, 9), (3, "a", 101, 11)]
    assert sum(report.steps["once"].late_rows for report in run.epochs()) == 1
    assert run.epochs()[-1].steps["once"].state_rows == run.read_state("once").num_rows == 2
    assert run.epochs()[-1].steps["once"].watermark == at(91)
