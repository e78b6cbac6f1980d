"""Functions that are called again for a key when its time has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.errors import GraphError
from tests.engine.harness import run_available
from tests.eventtime.oracle import START
from tests.eventtime.test_windows import SCHEMA, Inboxes, events, fill


def alarm(seconds: int) -> Callable[..., Any]:
    """Tells of keys of which nothing was heard for a while, with how many rows they had, and forgets them."""

    def silent(rows: pa.Table, state: pa.Table, now: datetime | None) -> tuple[pa.Table, pa.Table]:
        known = {row["k"]: row for row in state.to_pylist()}
        for row in rows.to_pylist():
            old = known.get(row["k"], {"n": 0, "ends": None})
            ends = row["at"] + timedelta(seconds=seconds)
            known[row["k"]] = {"k": row["k"], "n": old["n"] + 1, "ends": max(ends, old["ends"] or ends)}
        arrived = set(rows.column("k").to_pylist())
        over = [row for k, row in known.items() if now is not None and row["ends"] <= now and k not in arrived]
        kept = [row for row in known.values() if row not in over]
        kinds = pa.schema([("k", pa.string()), ("n", pa.int64()), ("ends", pa.timestamp("us", tz="UTC"))])
        return pa.Table.from_pylist(over, kinds).select(["k", "n"]), pa.Table.from_pylist(kept, kinds)

    return silent


def test_silence_is_told_when_the_watermark_has_passed(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events_in, sink = inbox(SCHEMA), ms.sinks.memory()
    fill(events_in, [[("a", 0, 1), ("b", 2, 1)], [("a", 8, 1)], [("c", 12, 1)], [("c", 30, 1), ("d", 31, 1)], []])
    keyed = events(events_in).key_by("k")
    silent = keyed.stateful(
        "silent", alarm(10), state="n bigint, ends timestamp", output="k string, n bigint", timer="ends", parallelism=2
    )
    run = run_available(silent.sink("out", sink), spark, tmp_path / "chk")
    found = [(epoch, r["k"], r["n"]) for epoch, table in sink.epochs.items() for r in table.to_pylist()]
    assert sorted(found) == [(2, "b", 1), (3, "a", 2)]
    state = {row["k"]: (row["ends"] - START).total_seconds() for row in run.read_state("silent").to_pylist()}
    assert state == {"c": 40, "d": 41}


def test_silence_is_told_by_the_clock_without_any_rows(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    """The epoch in which a timer is due comes although no source has rows; also in a run that was stopped meanwhile."""

    def silent(rows: pa.Table, state: pa.Table, now: datetime) -> tuple[pa.Table, pa.Table]:
        known = {row["k"]: row["wakes"] for row in state.to_pylist()}
        known.update(dict.fromkeys(rows.column("k").to_pylist(), now + timedelta(seconds=2)))
        over = [k for k, wakes in known.items() if wakes <= now]
        kinds = pa.schema([("k", pa.string()), ("wakes", pa.timestamp("us", tz="UTC"))])
        kept = [{"k": k, "wakes": wakes} for k, wakes in known.items() if k not in over]
        return pa.table({"k": pa.array(over, pa.string())}), pa.Table.from_pylist(kept, kinds)

    events_in, sink = inbox("k string"), ms.sinks.memory()
    step = (
        events_in.source()
        .key_by("k")
        .stateful(
            "silent",
            silent,
            state="wakes timestamp",
            output="k string",
            timer="wakes",
            clock="processing",
            parallelism=2,
        )
    )
    flow = step.sink("out", sink)
    run = flow.start(spark, str(tmp_path / "chk"))
    events_in.add(("a",), ("b",))
    run.process_available()
    assert sink.to_pylist() == []
    wait(lambda: len(sink.to_pylist()) == 2)
    assert sorted(row["k"] for row in sink.to_pylist()) == ["a", "b"]
    assert run.last_epoch <= 2
    events_in.add(("c",))
    run.process_available()
    run.stop()
    run = flow.start(spark, str(tmp_path / "chk"))
    wait(lambda: len(sink.to_pylist()) == 3)
    run.stop()
    assert run.read_state("silent").num_rows == 0


def wait(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_timers_that_are_none(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    keyed = events(inbox(SCHEMA)).key_by("k")
    for timer, told in {"n": "of type int64", "when": "columns of its state are n, ends"}.items():
        step = keyed.stateful("s", alarm(1), state="n bigint, ends timestamp", output="k string, n bigint", timer=timer)
        with pytest.raises(GraphError, match=f"BAD_TIMER.*{told}"):
            step.sink("out", ms.sinks.noop()).start(spark, str(tmp_path / "chk"))
    with pytest.raises(GraphError, match="BAD_TIMER"):
        keyed.stateful("s", alarm(1), state={"t": ms.table("ends timestamp")}, output="k string", timer="ends")
