"""Joins of two streams on a running pipeline, against a computation in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.errors import GraphError
from tests.engine.harness import Inbox, run_available
from tests.eventtime.joinoracle import IntervalJoins, Result, Row, WindowJoins, joined
from tests.eventtime.oracle import START, at
from tests.eventtime.test_windows import Inboxes

Epoch = tuple[list[Row], list[Row]]
HOWS = ["inner", "left", "right", "full", "semi", "anti"]
SOME = [how if how == "full" else pytest.param(how, marks=pytest.mark.long) for how in HOWS]


def side(inbox: Inbox, name: str, time: str, delay: int) -> ms.Stream:
    directory, schema = str(inbox.directory), inbox.schema
    inbox.directory.mkdir(parents=True, exist_ok=True)
    return ms.source(
        name,
        lambda spark: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(directory),
        event_time=time,
        delay=f"{delay} seconds",
    )


def run_join(
    spark: SparkSession, tmp_path: Path, inbox: Inboxes, epochs: list[Epoch], delay: int, **options: Any
) -> tuple[ms.sinks.MemorySink, Any]:
    boxes = inbox("k string, at timestamp, v bigint", "left"), inbox("k string, bt timestamp, w bigint", "right")
    for rows in epochs:
        for box, of_side in zip(boxes, rows, strict=True):
            box.add(*((k, at(t), v) for k, t, v in of_side))
    left, right = side(boxes[0], "left", "at", delay), side(boxes[1], "right", "bt", delay)
    sink = ms.sinks.memory()
    joined = left.join("joined", right, "k", parallelism=2, **options)
    return sink, run_available(joined.sink("out", sink), spark, tmp_path / "chk")


def seconds(value: Any) -> int | None:
    return None if value is None else int((value - START).total_seconds())


def found(sink: ms.sinks.MemorySink) -> dict[int, Result]:
    def row_of(row: dict[str, Any]) -> tuple[Any, ...]:
        left = (row["k"], seconds(row["at"]), row["v"])
        return (*left, seconds(row["bt"]), row["w"]) if "bt" in row else left

    by_epoch = {epoch: Counter(map(row_of, table.to_pylist())) for epoch, table in sink.epochs.items()}
    return {epoch: rows for epoch, rows in by_epoch.items() if rows}


def random_epochs(seed: int, epochs: int = 5, rows: int = 14) -> list[Epoch]:
    chance = random.Random(seed)

    def some(number: int) -> list[Row]:
        return [
            (chance.choice(["a", "b", "c", None]), max(0, 20 * number + chance.randint(-15, 20)), chance.randint(0, 99))
            for _ in range(chance.randint(0, rows))
        ]

    made: list[Epoch] = [(some(number), some(number)) for number in range(epochs)]
    return [*made, ([("z", 1000, 0)], [("z", 1001, 0)])]


@pytest.mark.long
@pytest.mark.parametrize("how", SOME)
def test_windows(spark: SparkSession, tmp_path: Path, inbox: Inboxes, how: str) -> None:
    epochs, oracle = random_epochs(HOWS.index(how)), WindowJoins(10, how, delay=4)
    sink, run = run_join(spark, tmp_path, inbox, epochs, 4, how=how, window=ms.tumbling("10 seconds"))
    expected = {n: rows for n, epoch in enumerate(epochs) if (rows := oracle.epoch(*epoch))}
    assert found(sink) == expected
    assert run.epochs()[-1].steps["joined"].state_rows == len(oracle.left) + len(oracle.right)


@pytest.mark.long
@pytest.mark.parametrize("how", SOME)
def test_intervals(spark: SparkSession, tmp_path: Path, inbox: Inboxes, how: str) -> None:
    epochs, oracle = random_epochs(10 + HOWS.index(how)), IntervalJoins(5, 12, how, delay=4)
    within = ("5 seconds", "12 seconds")
    sink, run = run_join(spark, tmp_path, inbox, epochs, 4, how=how, within=within)
    expected = {n: rows for n, epoch in enumerate(epochs) if (rows := oracle.epoch(*epoch))}
    assert found(sink) == expected
    kept = sum(run.read_state("joined", table).num_rows for table in ("left", "right"))
    assert run.epochs()[-1].steps["joined"].state_rows == kept <= 4, "what can find no partner any more is gone"


def test_for_good(spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
    epochs = random_epochs(20)
    sink, run = run_join(spark, tmp_path, inbox, epochs, 0, keep_all=True)
    left, right = ([row for epoch in epochs for row in epoch[side]] for side in (0, 1))
    assert sum(found(sink).values(), Counter()) == joined("inner", left, right, lambda a, b: True)
    assert run.epochs()[-1].steps["joined"].state_rows == len(left) + len(right)


class TestRefused:
    def test_without_bounds(self, inbox: Inboxes) -> None:
        stream = inbox("k string").source()
        for options in ({}, {"window": ms.tumbling("1 hour"), "within": ("1 hour", "1 hour")}):
            with pytest.raises(GraphError, match="BAD_JOIN"):
                stream.join("j", stream, "k", **options)  # type: ignore[arg-type]

    def test_columns_that_do_not_fit(self, spark: SparkSession, tmp_path: Path, inbox: Inboxes) -> None:
        cases = {
            "SAME_COLUMN_NAMES.*v": "k string, bt timestamp, v bigint",
            "OTHER_KEY_TYPE.*string.*bigint": "k bigint, bt timestamp, w bigint",
            "UNKNOWN_KEY_COLUMN": "x string, bt timestamp, w bigint",
        }
        for number, (told, schema) in enumerate(cases.items()):
            left = side(inbox("k string, at timestamp, v bigint", f"l{number}"), "left", "at", 0)
            right = side(inbox(schema, f"r{number}"), "right", "bt", 0)
            flow = left.join("j", right, "k", window=ms.tumbling("1 hour")).sink("out", ms.sinks.noop())
            with pytest.raises(GraphError, match=told):
                flow.start(spark, str(tmp_path / f"chk{number}"))
