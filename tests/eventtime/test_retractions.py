"""Results that take back what they replace: added up with their signs, they are the results as they are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.errors import GraphError
from tests.engine.harness import Inbox, run_available
from tests.eventtime.test_windows import SCHEMA, events, fill


def net(sink: Any, *columns: str) -> Counter[tuple[Any, ...]]:
    """What is left when every row that was taken back is gone. Nothing may be taken back that was not given."""
    left: Counter[tuple[Any, ...]] = Counter()
    for _, table in sorted(sink.epochs.items()):
        rows = table.to_pylist()
        for row in rows:
            left[tuple(row[name] for name in columns)] += 1 if row["change"] == "+" else -1
        assert all(count >= 0 for count in left.values()), rows
    return +left


def test_by_key(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    given, sink = inbox("k string, v bigint"), ms.sinks.memory()
    given.add(("a", 1), (None, 5))
    given.add(("a", 2), ("b", 0))
    given.add(("b", 0), (None, 5), ("a", 0))
    keyed = given.source().key_by("k")
    sums = keyed.aggregate("sums", output_mode="retractions", total=F.sum("v"), kinds=F.countDistinct("v"))
    run = run_available(sums.sink("out", sink), spark, tmp_path / "chk")
    found = [
        sorted((r["k"] or "", r["total"], r["change"]) for r in table.to_pylist()) for table in sink.epochs.values()
    ]
    assert found == [
        [("", 5, "+"), ("a", 1, "+")],
        [("a", 1, "-"), ("a", 3, "+"), ("b", 0, "+")],
        # That `b` has got a row does not show in its result.
        [("", 5, "-"), ("", 10, "+"), ("a", 3, "+"), ("a", 3, "-")],
    ]
    results = run.read_result("sums").to_pylist()
    assert net(sink, "k", "total", "kinds") == Counter((r["k"], r["total"], r["kinds"]) for r in results)


def test_a_sum_of_sums(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    """Why one wants them: a further aggregate adds with the sign, and is right in every epoch."""
    chance = random.Random(3)
    given, sink = inbox("k string, v bigint"), ms.sinks.memory()
    epochs = [[(chance.choice("abcdef"), chance.randint(0, 99)) for _ in range(8)] for _ in range(4)]
    for rows in epochs:
        given.add(*rows)
    highest = given.source().key_by("k").aggregate("highest", output_mode="retractions", v=F.max("v"))
    signed = highest.sql("signed", "SELECT 1 AS one, if(change = '+', v, -v) AS v FROM input")
    flow = signed.key_by("one").aggregate("total", v=F.sum("v")).sink("out", sink)
    run_available(flow, spark, tmp_path / "chk")
    best: dict[str, int] = {}
    for number, rows in enumerate(epochs):
        for k, v in rows:
            best[k] = max(v, best.get(k, 0))
        last = [row["v"] for epoch, t in sorted(sink.epochs.items()) if epoch <= number for row in t.to_pylist()][-1]
        assert last == sum(best.values())


@pytest.mark.long
def test_by_window(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events_in, early, closed = inbox(SCHEMA), ms.sinks.memory(), ms.sinks.memory()
    chance = random.Random(5)
    epochs = [
        [(chance.choice(["a", "b", None]), 7 * epoch + chance.randint(0, 9), chance.randint(0, 5)) for _ in range(8)]
        for epoch in range(6)
    ]
    fill(events_in, [*epochs, [("end", 1000, 0)]])
    windows = events(events_in, "10 seconds").key_by("k").window(ms.tumbling("10 seconds"))
    flow = ms.pipeline(
        windows.aggregate("early", emit="retractions", total=F.sum("v")).sink("early-out", early),
        windows.aggregate("closed", total=F.sum("v")).sink("closed-out", closed),
    )
    run_available(flow, spark, tmp_path / "chk")
    final = Counter((r["k"], r["window_start"], r["total"]) for t in closed.epochs.values() for r in t.to_pylist())
    left = net(early, "k", "window_start", "total")
    assert final
    assert Counter({row: n for row, n in left.items() if row[0] != "end"}) == final


def test_the_column_must_be_free() -> None:
    keyed = ms.source("events", lambda spark: spark.readStream.load()).key_by("k")
    with pytest.raises(GraphError, match=r"DUPLICATE_COLUMN.*change"):
        keyed.aggregate("sums", output_mode="retractions", change=F.count("*"))
