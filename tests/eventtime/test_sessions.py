"""Sessions on a running pipeline, against a computation in plain Python and against Spark's own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.errors import GraphError
from tests.engine.harness import Inbox, run_available
from tests.eventtime.oracle import Row, Sessions, at, flat
from tests.eventtime.test_windows import SCHEMA, Inboxes, events, fill, given


def check(spark: SparkSession, tmp_path: Path, inbox: Inbox, epochs: list[list[Row]], oracle: Sessions) -> None:
    fill(inbox, epochs)
    sink = ms.sinks.memory()
    keyed = events(inbox, f"{oracle.delay} seconds").key_by("k")
    windows = keyed.window(ms.session(f"{oracle.gap} seconds"), lateness=f"{oracle.lateness} seconds")
    counted = windows.aggregate("sessions", parallelism=2, n=F.count("*"), total=F.sum("v"))
    run = run_available(counted.sink("out", sink), spark, tmp_path / "chk")
    expected = [oracle.epoch(rows) for rows in epochs]
    assert given(sink) == flat(expected)
    assert sum(report.steps["sessions"].late_rows for report in run.epochs()) == oracle.late_rows
    kept = run.read_state("sessions")
    assert sum(kept["__rows"].to_pylist()) == len(oracle.rows)
    assert run.epochs()[-1].steps["sessions"].state_rows == kept.num_rows <= len(oracle.rows)


def test_a_late_row_joins_two_sessions_to_one(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    epochs: list[list[Row]] = [
        [("a", 0, 1), ("a", 20, 2), ("b", 5, 3)],
        [("a", 10, 4)],  # as far from both as the gap: one session now
        [(None, 40, 5), ("a", None, 6)],
        [("a", 31, 7), ("b", 6, 8), ("a", 70, 9)],  # b is too late
        [],
        [("c", 200, 10)],
    ]
    check(spark, tmp_path, inbox(SCHEMA), epochs, Sessions(10, delay=12))


def test_random_rows_out_of_order_and_late(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    chance = random.Random(5)
    epochs: list[list[Row]] = [
        [
            (chance.choice("abcdef"), max(0, 60 * number + chance.randint(-120, 60)), chance.randint(-5, 5))
            for _ in range(25)
        ]
        for number in range(7)
    ]
    oracle = Sessions(8, delay=20, lateness=10)
    check(spark, tmp_path, inbox(SCHEMA), epochs, oracle)
    assert oracle.late_rows


def test_as_spark_cuts_them(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    chance, events_in, sink = random.Random(9), inbox(SCHEMA), ms.sinks.memory()
    rows: list[Row] = [(chance.choice("ab"), 5 * chance.randint(0, 80), 1) for _ in range(60)]
    fill(events_in, [rows, [("z", 10_000, 1)]])
    counted = events(events_in).key_by("k").window(ms.session("10 seconds")).aggregate("s", n=F.count("*"))
    run_available(counted.sink("out", sink), spark, tmp_path / "chk")
    batch = events_in.batch(spark).where("k != 'z'").groupBy("k", F.session_window("at", "10 seconds").alias("w"))
    native = batch.agg(F.count("*").alias("n")).select("k", "w.start", "w.end", "n").collect()
    ours = [(r["k"], r["window_start"], r["window_end"], r["n"]) for r in sink.to_pylist()]
    theirs = [(r.k, r.start.astimezone(at(0).tzinfo), r.end.astimezone(at(0).tzinfo), r.n) for r in native]
    assert sorted(ours) == sorted(theirs)


def test_without_a_key(inbox: Inboxes) -> None:
    with pytest.raises(GraphError, match="BAD_SESSION"):
        events(inbox(SCHEMA)).window(ms.session("10 seconds")).aggregate("s", n=F.count("*"))
