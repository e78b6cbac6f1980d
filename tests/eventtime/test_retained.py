"""Windows whose rows are kept, for a function of the user's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import SparkSession

import midstream as ms
from midstream.errors import MidstreamError
from midstream.eventtime.retained import RetainedWindows
from midstream.eventtime.windows import END, START
from midstream.task.windowfn import WindowFunction
from tests.engine.harness import run_available
from tests.eventtime.local import LocalStep
from tests.eventtime.test_cuts import DELAY, END_OF_TIME, INSTANT, MICRO, Event, cut, cuts, events, in_time, latest
from tests.eventtime.test_windows import SCHEMA, Inboxes, fill
from tests.eventtime.test_windows import events as stream_of

OUTPUT = "k string, from timestamp, middle bigint, n bigint"


def medians(rows: pa.Table) -> pa.Table:
    """What no aggregate gives: of each window, the value in the middle of all."""
    windows: dict[Any, list[int]] = {}
    for row in rows.to_pylist():
        windows.setdefault((row["k"], row[START]), []).append(row["v"])
    made = [
        {"k": k, "from": start, "middle": sorted(values)[len(values) // 2], "n": len(values)}
        for (k, start), values in windows.items()
    ]
    kinds = [("k", pa.string()), ("from", INSTANT), ("middle", pa.int64()), ("n", pa.int64())]
    return pa.Table.from_pylist(made, pa.schema(kinds))


def given_by(sink: Any) -> list[tuple[int, Any, int, int]]:
    found = [(epoch, r["k"], r["middle"], r["n"]) for epoch, t in sink.epochs.items() for r in t.to_pylist()]
    return sorted(found, key=repr)


def test_rows_late_rows_and_closed_windows(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    epochs: list[list[tuple[Any, int | None, int]]] = [
        [("a", 1, 5), ("a", 2, 1), ("a", 9, 9), (None, 3, 4), ("b", None, 1)],
        [("a", 10, 1), ("b", 14, 2)],  # the first windows are over
        [("a", 8, 7), ("b", 15, 3)],  # late, and allowed
        [("b", 26, 0)],  # the second are over, the first closed
        [("a", 7, 7), ("a", 27, 0)],  # too late
    ]
    fill(events_in, epochs)
    windows = stream_of(events_in).key_by("k").window(ms.tumbling("10 seconds"), lateness="10 seconds")
    middles = windows.apply("middles", medians, output=OUTPUT, parallelism=2)
    late = ms.sinks.memory()
    flow = ms.pipeline(middles.sink("out", sink), middles.late("too-late").sink("late-out", late))
    run = run_available(flow, spark, tmp_path / "chk")
    assert given_by(sink) == [
        (1, "a", 5, 3),
        (1, None, 4, 1),
        (2, "a", 7, 4),
        (3, "a", 1, 1),
        (3, "b", 3, 2),
    ]
    assert sum(report.steps["middles"].late_rows for report in run.epochs()) == 1
    assert [row["v"] for row in late.to_pylist()] == [7]
    assert run.read_state("middles").num_rows == 2 + 3, "the second windows, of which late rows may come, and the third"


@pytest.mark.long
def test_sessions_and_so_many_rows(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sessions, counted = inbox(SCHEMA), ms.sinks.memory(), ms.sinks.memory()
    fill(events_in, [[("a", 1, 5), ("a", 3, 1)], [("a", 5, 9), ("b", 30, 1)], [("b", 50, 0)]])
    keyed = stream_of(events_in).key_by("k")
    visits = keyed.window(ms.session("4 seconds")).apply("visits", medians, output=OUTPUT)

    def least(rows: pa.Table) -> pa.Table:
        return rows.group_by("k").aggregate([("v", "min")]).rename_columns(["k", "least"])

    pairs = keyed.window(ms.global_window(ms.after_rows(2))).apply("pairs", least, output="k string, least bigint")
    flow = ms.pipeline(visits.sink("out", sessions), pairs.sink("two", counted))
    run_available(flow, spark, tmp_path / "chk")
    assert given_by(sessions) == [(1, "a", 5, 3), (2, "b", 1, 1)]
    assert [(epoch, t.to_pylist()) for epoch, t in counted.epochs.items() if t.num_rows] == [
        (0, [{"k": "a", "least": 1}]),
        (2, [{"k": "b", "least": 0}]),
    ]


def test_a_function_that_fails_is_named(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in = inbox(SCHEMA)
    fill(events_in, [[("a", 1, 5)], [("a", 20, 5)]])

    def wrong(rows: pa.Table) -> pa.Table:
        return rows.select(["k"])

    windows = stream_of(events_in).key_by("k").window(ms.tumbling("10 seconds"))
    flow = windows.apply("middles", wrong, output=OUTPUT).sink("out", ms.sinks.noop())
    with pytest.raises(MidstreamError, match=r"wrong.*test_retained.py.*'middles'"):
        run_available(flow, spark, tmp_path / "chk")


KEYS = pa.schema([("k", pa.string()), (START, INSTANT), (END, INSTANT)])
VALUES = pa.schema([("v", pa.int64())])
ALL = pa.schema([*KEYS, *VALUES])


def as_they_are(rows: pa.Table) -> pa.Table:
    return rows


@settings(max_examples=60)
@given(events, cuts)
def test_however_the_stream_is_cut(drawn: Any, at: list[int]) -> None:
    rows = in_time(drawn)
    step = LocalStep(RetainedWindows(WindowFunction("w", as_they_are, ALL), KEYS, VALUES, 0), tuple(KEYS.names), ALL)
    found: Counter[tuple[Any, int, int]] = Counter()
    for epoch in [*cut(rows, at), [(None, END_OF_TIME, 0)]]:
        kept = [row for row in epoch if row[1] < END_OF_TIME]
        given_rows = step.epoch(_windows_of(kept), {"events": latest(epoch)}, DELAY * MICRO)
        found += Counter((r["k"], int(r[START].timestamp()), r["v"]) for r in given_rows)
    assert found == Counter((k, time // 10 * 10, v) for k, time, v in rows)
    assert step.state.rows == 0
    assert step.late == 0
    step.close()


def _windows_of(rows: list[Event]) -> pa.Table:
    columns = [
        [k for k, _, _ in rows],
        [time // 10 * 10 * MICRO for _, time, _ in rows],
        [(time // 10 + 1) * 10 * MICRO for _, time, _ in rows],
        [v for _, _, v in rows],
    ]
    return pa.table(columns, schema=ALL)
