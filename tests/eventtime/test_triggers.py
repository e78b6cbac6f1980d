"""Global windows: one window for all time, with a trigger that says when results are given."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.errors import GraphError
from midstream.eventtime.counted import CountWindows
from midstream.eventtime.finish import Applied
from midstream.task.windowfn import WindowFunction
from tests.engine.harness import run_available
from tests.eventtime.local import LocalStep
from tests.eventtime.test_windows import SCHEMA, Inboxes, events, fill

KEYS, VALUES = pa.schema([("k", pa.string())]), pa.schema([("v", pa.int64())])
EPOCHS: list[list[tuple[Any, int | None, int]]] = [
    [("a", 1, 1), ("a", 2, 2), ("b", 3, 10), (None, 4, 7)],
    [],
    [("a", 12, 4), (None, 13, 7)],
    [("b", 38, 20), ("a", 39, 8), ("a", None, 16), ("a", 40, 32)],
    [("c", 41, 1)],
]


def sums(spark: SparkSession, tmp_path: Path, inbox: Inboxes, trigger: Any) -> list[tuple[int, Any, int]]:
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    fill(events_in, EPOCHS)
    keyed = events(events_in).key_by("k").window(ms.global_window(trigger))
    flow = keyed.aggregate("sums", parallelism=2, total=F.sum("v")).sink("out", sink)
    run_available(flow, spark, tmp_path / "chk")
    found = [(epoch, row["k"], row["total"]) for epoch, t in sink.epochs.items() for row in t.to_pylist()]
    return sorted(found, key=repr)


def test_every_epoch(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    assert sums(spark, tmp_path, inbox, ms.every_epoch()) == [
        (0, "a", 3),
        (0, "b", 10),
        (0, None, 7),
        (2, "a", 7),
        (2, None, 14),
        (3, "a", 63),
        (3, "b", 30),
        (4, "c", 1),
    ]


def test_when_the_watermark_has_passed_a_moment(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    # The watermark comes to 4, 13, 40, 41: it is first known, and then passes 10, 30 and none.
    assert sums(spark, tmp_path, inbox, ms.at_watermark("10 seconds")) == [
        (0, "a", 3),
        (0, "b", 10),
        (0, None, 7),
        (2, "a", 7),
        (2, None, 14),
        (3, "a", 63),
        (3, "b", 30),
    ]


def test_after_so_many_rows(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    # Of `a` come 1, 2, then 4, then 8, 16 and 32.
    found = sums(spark, tmp_path, inbox, ms.after_rows(2))
    assert [row for row in found if row[1] != "a"] == [(2, None, 14), (3, "b", 30)]
    assert next((epoch, total) for epoch, k, total in found if k == "a") == (0, 3)
    assert [epoch for epoch, k, _ in found if k == "a"] == [0, 3, 3]
    assert sum(total for _, k, total in found if k == "a") == 63


def a_row_each(rows: pa.Table) -> pa.Table:
    return rows


@settings(max_examples=80)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=12), max_size=6),
    st.integers(1, 4),
)
def test_so_many_rows_however_they_are_cut(epochs: list[list[tuple[str | None, int]]], n: int) -> None:
    output = pa.schema([*KEYS, *VALUES])
    function = CountWindows(Applied(WindowFunction("counted", a_row_each, output)), KEYS, VALUES, n)
    step = LocalStep(function, ("k",), output)
    found, expected = defaultdict(list), defaultdict(list)
    for rows in epochs:
        table = pa.table([[k for k, _ in rows], [v for _, v in rows]], schema=output)
        for row in step.epoch(table, {}):
            found[row["k"]].append(row["v"])
        for k, v in rows:
            expected[k].append(v)
    whole = {k: values[: len(values) // n * n] for k, values in expected.items()}
    assert {k: values for k, values in whole.items() if values} == dict(found)
    assert step.state.rows == sum(len(values) % n for values in expected.values())
    step.close()


def test_what_a_global_window_cannot_do() -> None:
    source = ms.source("events", lambda spark: spark.readStream.load(), event_time="at")
    keyed = source.key_by("k")
    with pytest.raises(GraphError, match=r"BAD_TRIGGER.*after 0 rows"):
        ms.after_rows(0)
    with pytest.raises(GraphError, match=r"BAD_TRIGGER.*not taken back"):
        keyed.window(ms.global_window(ms.after_rows(2))).aggregate("n", emit="retractions", n=F.count("*"))
    with pytest.raises(GraphError, match=r"BAD_TRIGGER.*keep rows for good"):
        keyed.window(ms.global_window(ms.every_epoch())).apply("f", a_row_each, output="k string, v bigint")
    with pytest.raises(GraphError, match="BAD_CLOCK"):
        keyed.window(ms.global_window(ms.every_epoch()), clock="processing")
    with pytest.raises(GraphError, match="BAD_CLOCK"):
        keyed.window(ms.tumbling("1 second"), time="at", clock="processing")


def test_windows_by_the_clock(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """They are over when that time has come, also when no rows come any more."""
    from tests.eventtime.test_timers import wait

    given_in, sink = inbox("k string, v bigint"), ms.sinks.memory()
    keyed = given_in.source().key_by("k").window(ms.tumbling("2 seconds"), clock="processing")
    run = keyed.aggregate("sums", parallelism=2, total=F.sum("v")).sink("out", sink).start(spark, str(tmp_path / "chk"))
    given_in.add(("a", 1), ("b", 2))
    run.process_available()
    given_in.add(("a", 10), (None, 5))
    run.process_available()
    wait(lambda: sum(row["total"] for row in sink.to_pylist()) == 18)
    wait(lambda: run.read_state("sums").num_rows == 0)
    run.stop()
    totals: dict[Any, int] = defaultdict(int)
    for row in sink.to_pylist():
        totals[row["k"]] += row["total"]
        assert (row["window_end"] - row["window_start"]).total_seconds() == 2
    assert totals == {"a": 11, "b": 2, None: 5}
