"""Changes that are rejected cost the stream nothing once they are: the same plan, the same state, the same epochs."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from tests.modify.live import Live
from tests.modify.test_apply import counting
from tests.modify.test_refused import raises, wrong_columns

ROUNDS, EPOCHS = 5, 5
ROWS = [(f"k{number}", number) for number in range(2000)]


def fails(value: int) -> int:
    raise ValueError("not this one")


def hangs(value: int) -> int:
    time.sleep(60)
    return value


def with_failing_udf(frame: DataFrame) -> DataFrame:
    return frame.withColumn("v", F.udf(fails, "bigint")("v"))


def with_hanging_udf(frame: DataFrame) -> DataFrame:
    return frame.withColumn("v", F.udf(hangs, "bigint")("v"))


REJECTED: dict[str, Any] = {
    "nothing (control)": None,
    "a keyed function that raises": ms.Replace("count", raises),
    "wrong columns": ms.Replace("count", wrong_columns),
    "a UDF that raises": ms.Insert("x", with_failing_udf, after="events"),
    "a UDF that hangs": ms.Insert("x", with_hanging_udf, after="events"),
    "bad SQL": ms.Insert("x", sql="SELECT nothing FROM input", after="events"),
    "too many partitions": ms.Rescale("count", 5000),
    "an unknown step": ms.Remove("nothing"),
}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_rejected_changes_leave_throughput_as_it_was(live: Live) -> None:
    """Epochs right after a rejection, the very first above all, against those right before it, by turns in one run."""

    def epochs() -> list[float]:
        for _ in range(EPOCHS):
            live.epoch(*ROWS)
        return [report.duration_ms for report in live.run.epochs(EPOCHS)]

    live.start(counting(live), *ROWS)
    for _ in range(6):
        epochs()  # until the JVM has compiled what it will
    ranges = live.run._runner.last.steps["count"].ranges
    before: dict[str, list[float]] = {name: [] for name in REJECTED}
    after: dict[str, list[float]] = {name: [] for name in REJECTED}
    first: dict[str, list[float]] = {name: [] for name in REJECTED}
    kinds = list(REJECTED)
    for number in range(ROUNDS):
        for name in kinds[number:] + kinds[:number]:
            before[name] += epochs()
            if REJECTED[name] is not None:
                rejected = live.submit(REJECTED[name], time_limit=2.0)
                assert rejected.phase is Phase.REJECTED, rejected
            these = epochs()
            first[name].append(these[0])
            after[name] += these
    usual = median(duration for name in kinds for duration in before[name])
    for name in kinds:
        ratio = median(after[name]) / median(before[name])
        print(f"{name}: first {median(first[name]) / usual:.2f}x, all after vs before {ratio:.3f}x of {usual:.0f} ms")
    rejections = kinds[1:]
    total = sum(sum(after[name]) for name in rejections) / sum(sum(before[name]) for name in rejections)
    print(f"time for the same rows, after vs before rejections: {total:.3f}")
    assert total < 1.1
    for name in rejections:
        assert median(first[name]) < 1.5 * usual, name
    last = live.run._runner.last
    assert {report.plan for report in live.run.epochs()} == {1}
    assert last.steps["count"].ranges == ranges
    counted = {row["k"]: row["n"] for row in live.run.read_state("count").to_pylist()}
    assert counted == {key: last.epoch + 1 for key, _ in ROWS}
