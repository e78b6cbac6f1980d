"""The best rows of each key on a running pipeline, against a computation in plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.errors import GraphError
from tests.engine.harness import run_available
from tests.eventtime.test_windows import Inboxes

SCHEMA = "k string, price double, name string"


def test_the_best_rows_as_they_change(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    chance, events, sink = random.Random(4), inbox(SCHEMA), ms.sinks.memory()
    best: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    expected: list[dict[Any, list[tuple[Any, ...]]]] = []
    for epoch in range(6):
        rows = [
            (chance.choice(["a", "b", None]), chance.choice([None, *map(float, range(8))]), f"{epoch}-{n}")
            for n in range(chance.randint(0, 9))
        ]
        events.add(*rows)
        changed = {}
        for key in dict.fromkeys(row[0] for row in rows):
            mine = [*best[key], *(row for row in rows if row[0] == key)]
            mine.sort(key=lambda row: (row[1] is None, -(row[1] or 0)))
            if mine[:3] != best[key]:
                changed[key] = mine[:3]
            best[key] = mine[:3]
        expected.append(changed)
    top = events.source().key_by("k").top("best", 3, "price", parallelism=2)
    run = run_available(top.sink("out", sink), spark, tmp_path / "chk")
    for epoch, changed in enumerate(expected):
        found: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
        given = sink.epochs[epoch].to_pylist() if epoch in sink.epochs else []
        for row in sorted(given, key=lambda row: row["rank"]):
            found[row["k"]].append((row["k"], row["price"], row["name"]))
            assert row["rank"] == len(found[row["k"]])
        assert found == changed
    assert run.epochs()[-1].steps["best"].state_rows == sum(map(len, best.values()))
    assert run.read_state("best").num_rows == sum(map(len, best.values()))


def test_the_latest_row(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    events, sink = inbox("k string, at bigint, v bigint"), ms.sinks.memory()
    events.add(("a", 1, 10), ("b", 5, 11), ("a", 3, 12))
    events.add(("a", 2, 13), ("b", 6, 14))
    latest = events.source().key_by("k").latest("latest", "at")
    run_available(latest.sink("out", sink), spark, tmp_path / "chk")
    assert sorted(tuple(row.values()) for row in sink.epochs[0].to_pylist()) == [("a", 3, 12), ("b", 5, 11)]
    assert [tuple(row.values()) for row in sink.epochs[1].to_pylist()] == [("b", 6, 14)]


def test_refused(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    keyed = inbox(SCHEMA).source().key_by("k")
    with pytest.raises(GraphError, match="BAD_TOP"):
        keyed.top("t", 0, "price")
    with pytest.raises(GraphError, match=r"UNKNOWN_KEY_COLUMN.*prize"):
        keyed.top("t", 1, "prize").sink("out", ms.sinks.noop()).start(spark, str(tmp_path / "chk"))
