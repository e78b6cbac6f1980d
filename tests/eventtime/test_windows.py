"""Windows of event time on a running pipeline, against a computation in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.errors import GraphError
from tests.engine.harness import Inbox, preaggregated, run_available
from tests.eventtime.oracle import START, Row, Windows, at, flat

SCHEMA = "k string, at timestamp, v bigint"
Inboxes = Callable[..., Inbox]


def events(inbox: Inbox, delay: str = "0 seconds") -> ms.Stream:
    directory, schema = str(inbox.directory), inbox.schema
    inbox.directory.mkdir(parents=True, exist_ok=True)
    return ms.source(
        "events",
        lambda spark: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(directory),
        event_time="at",
        delay=delay,
    )


def fill(inbox: Inbox, epochs: Sequence[Sequence[Row]]) -> None:
    for rows in epochs:
        inbox.add(*((key, None if time is None else at(time), value) for key, time, value in rows))


def counts(stream: ms.Stream, window: Any, **options: Any) -> ms.Stream:
    lateness = options.pop("lateness", "0 seconds")
    keyed = stream.key_by("k").window(window, lateness=lateness)
    return keyed.aggregate("counts", parallelism=2, n=F.count("*"), total=F.sum("v"), **options)


def given(sink: ms.sinks.MemorySink) -> list[tuple[int, Any, int, int, int]]:
    """What each epoch has given, in the form of the oracle."""
    return sorted(
        (
            (epoch, row["k"], int((row["window_start"] - START).total_seconds()), row["n"], row["total"])
            for epoch, table in sink.epochs.items()
            for row in table.to_pylist()
        ),
        key=repr,
    )


def check(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, epochs: Sequence[Sequence[Row]], oracle: Windows
) -> ms.Pipeline:
    fill(inbox, epochs)
    window = ms.sliding(f"{oracle.size} seconds", f"{oracle.slide} seconds")
    emit = "changed" if oracle.early else "closed"
    sink = ms.sinks.memory()
    stream = events(inbox, f"{oracle.delay} seconds")
    flow = counts(stream, window, lateness=f"{oracle.lateness} seconds", emit=emit).sink("out", sink)
    run = run_available(flow, spark, tmp_path / "chk")
    expected = [oracle.epoch(rows) for rows in epochs]
    assert given(sink) == flat(expected)
    assert sum(report.steps["counts"].late_rows for report in run.epochs()) == oracle.late_rows
    assert run.read_state("counts").num_rows == len(oracle.state)
    assert run.epochs()[-1].steps["counts"].state_rows == len(oracle.state)
    return flow


def test_a_window_gives_its_result_when_it_is_over(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    epochs: list[list[Row]] = [
        [("a", 1, 1), ("b", 9, 2)],
        [("a", 10, 3)],  # the end of the first window belongs to the second, and is the watermark that closes it
        [("a", 9, 4), ("a", 11, 5)],  # too late
        [(None, 25, 6), ("a", None, 7)],  # null is a key like any other; a row without a time is in no window
        [],
        [("c", 60, 8)],
    ]
    check(spark, tmp_path, inbox(SCHEMA), epochs, Windows(10, 10))


@pytest.mark.parametrize("early", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rows_out_of_order_and_late(spark: SparkSession, tmp_path: Path, inbox: Inboxes, early: bool) -> None:
    chance = random.Random(7)
    epochs: list[list[Row]] = [
        [
            (chance.choice("abc"), max(0, 40 * number + chance.randint(-60, 40)), chance.randint(-5, 5))
            for _ in range(40)
        ]
        for number in range(6)
    ]
    oracle = Windows(30, 10, delay=5, lateness=15, early=early)
    check(spark, tmp_path, inbox(SCHEMA), epochs, oracle)
    assert oracle.late_rows


def test_aggregated_before_the_exchange(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    epochs: list[list[Row]] = [
        [("a", t, 1) for t in range(30)],
        [("a", t, 1) for t in range(40)],
        [("b", 90, 1)],
    ]
    with preaggregated(lambda _: True):
        check(spark, tmp_path, inbox(SCHEMA), epochs, Windows(10, 5, delay=3))


def test_days_when_clocks_change(
    spark: SparkSession, tmp_path: Path, inbox: Inboxes, set_conf: Callable[[str, str], None]
) -> None:
    set_conf("spark.sql.session.timeZone", "Europe/Berlin")
    hour = 3600
    epochs: list[list[Row]] = [[("a", n * hour // 2, 1) for n in range(6)], [("a", 30 * hour, 1)]]
    check(spark, tmp_path, inbox(SCHEMA), epochs, Windows(hour, hour))


def test_times_without_a_zone(
    spark: SparkSession, tmp_path: Path, inbox: Inboxes, set_conf: Callable[[str, str], None]
) -> None:
    set_conf("spark.sql.session.timeZone", "America/New_York")
    inbox_ = inbox("k string, at timestamp_ntz, v bigint")
    for rows in [[("a", 1, 1), ("a", 11, 2)], [("a", 25, 3)]]:
        inbox_.add(*((k, at(t).replace(tzinfo=None), v) for k, t, v in rows))
    sink = ms.sinks.memory()
    flow = counts(events(inbox_), ms.tumbling("10 seconds")).sink("out", sink)
    run_available(flow, spark, tmp_path / "chk")
    found = [(row["window_end"], row["n"], row["total"]) for row in sink.to_pylist()]
    assert sorted(found) == [(at(10).replace(tzinfo=None), 1, 1), (at(20).replace(tzinfo=None), 1, 2)]


def test_a_restart_in_the_middle_of_windows(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, oracle, sink = inbox(SCHEMA), Windows(20, 10, delay=5), ms.sinks.memory()
    chance, expected = random.Random(3), []
    for start in range(3):
        epochs = [[("ab"[n % 2], 15 * (2 * start + e) + chance.randint(0, 20), n) for n in range(9)] for e in range(2)]
        fill(events_in, epochs)
        expected += [oracle.epoch(rows) for rows in epochs]
        flow = counts(events(events_in, "5 seconds"), ms.sliding("20 seconds", "10 seconds")).sink("out", sink)
        run_available(flow, spark, tmp_path / "chk")
    assert given(sink) == flat(expected)


def test_windows_of_windows_close_in_the_same_epoch(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """The busiest key of each window: what the counts give when they close is taken together at once."""
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    fill(events_in, [[("a", 1, 0), ("b", 2, 0), ("b", 3, 0)], [("a", 12, 0)], [("a", 31, 0)]])
    per_key = events(events_in).key_by("k").window(ms.tumbling("10 seconds")).aggregate("counts", n=F.count("*"))
    most = per_key.window(ms.window_of_input()).aggregate("most", most=F.max("n"), keys=F.count("*"))
    run = run_available(most.sink("out", sink), spark, tmp_path / "chk")
    found = {
        epoch: [(r["window_start"], r["most"], r["keys"]) for r in t.to_pylist()] for epoch, t in sink.epochs.items()
    }
    assert {epoch: rows for epoch, rows in found.items() if rows} == {1: [(at(0), 2, 2)], 2: [(at(10), 1, 1)]}
    assert run.read_state("most").num_rows == 0


def test_late_rows_go_where_they_are_sent(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink, late = inbox(SCHEMA), ms.sinks.memory(), ms.sinks.memory()
    # A row is late when all of its windows are closed: at 14 one of two is.
    fill(events_in, [[("a", 1, 1), ("a", 24, 2)], [("a", 9, 3), ("b", 14, 4), ("a", 30, 5), ("a", None, 6)]])
    counted = counts(events(events_in), ms.sliding("20 seconds", "10 seconds"))
    flow = ms.pipeline(counted.sink("out", sink), counted.late("late").sink("too-late", late))
    run_available(flow, spark, tmp_path / "chk")
    assert [(row["k"], row["at"], row["v"]) for row in late.to_pylist()] == [("a", at(9), 3)]
    oracle = Windows(20, 10)
    expected = [oracle.epoch(rows) for rows in ([("a", 1, 1), ("a", 24, 2)], [("b", 14, 4), ("a", 30, 5)])]
    assert given(sink) == flat(expected)


def test_state_stays_small_and_is_reclaimed(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in = inbox(SCHEMA)
    fill(events_in, [[(f"k{n}", 10 * e, n) for n in range(50)] for e in range(16)])
    flow = counts(events(events_in), ms.tumbling("10 seconds")).sink("out", ms.sinks.noop())
    run = run_available(flow, spark, tmp_path / "chk", retain_epochs=2)
    states = [report.steps["counts"] for report in run.epochs()]
    assert {state.state_rows for state in states} == {50}
    assert max(state.state_bytes for state in states[5:]) <= 2 * states[2].state_bytes
    assert states[-1].watermark == at(150)


class TestRefused:
    def test_windows_without_a_watermark(self, spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
        flow = counts(
            inbox(SCHEMA).source(),
            ms.tumbling("10 seconds"),
        ).sink("out", ms.sinks.noop())
        with pytest.raises(GraphError, match="NO_WATERMARK"):
            flow.start(spark, str(tmp_path / "chk"))

    def test_a_time_that_is_none(self, spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
        keyed = events(inbox(SCHEMA)).key_by("k")
        for column, told in {"v": "bigint", "nope": "none of its columns"}.items():
            flow = keyed.window(ms.tumbling("1 hour"), time=column).aggregate("n", n=F.count("*"))
            with pytest.raises(GraphError, match=f"BAD_EVENT_TIME.*{told}"):
                flow.sink("out", ms.sinks.noop()).start(spark, str(tmp_path / "chk"))

    @pytest.mark.parametrize("given", ["10", "ten seconds", "1 month", "-1 second", 5, None, "0 seconds"])
    def test_lengths_that_are_none(self, given: Any) -> None:
        with pytest.raises(GraphError, match="BAD_DURATION"):
            ms.tumbling(given)

    def test_late_rows_of_a_step_without_windows(self, inbox: Inboxes) -> None:
        counted = inbox(SCHEMA).source().key_by("k").aggregate("n", n=F.count("*"))
        with pytest.raises(GraphError, match="NOTHING_IS_LATE"):
            counted.late("late")

    def test_windows_with_gaps(self) -> None:
        with pytest.raises(GraphError, match="BAD_SLIDE"):
            ms.sliding("1 minute", "2 minutes")
