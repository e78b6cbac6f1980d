"""Partitions cut by what they had to do: skewed keys are spread, and results stay what they were."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import midstream as ms
from midstream.coordinator.modification import Phase
from midstream.errors import ChangeError
from midstream.state.hashspace import number_of
from tests.modify.live import Live
from tests.modify.test_apply import sums


def skewed(number: int) -> list[tuple[str, int]]:
    """Half of the rows have one of ten keys, the others one of thousands."""
    chance = random.Random(number)
    return [(f"k{chance.randrange(10) if chance.random() < 0.5 else chance.randrange(5000)}", 1) for _ in range(4000)]


def spread(live: Live) -> float:
    """Rows of the busiest partition by those of a fair share, with rows as they come."""
    ranges = live.run._runner.last.steps["sums"].ranges
    rows = live.spark.createDataFrame([row for number in range(8) for row in skewed(number)], "k string, v bigint")
    each = Counter(number_of(row[0], ranges) for row in rows.selectExpr("xxhash64(k)").collect())
    return max(each.values()) * len(ranges) / each.total()


def test_busy_partitions_get_narrower(live: Live) -> None:
    live.start(sums(live))
    for number in range(6):
        live.epoch(*skewed(number))
    live.change(ms.Rescale("sums", 4), *skewed(6))
    before = spread(live)
    live.change(ms.Rebalance("sums"), *skewed(7))
    assert len(live.run._runner.last.steps["sums"].ranges) == 4
    assert spread(live) < 1.1 < before
    live.change(ms.Rebalance("sums", 6), *skewed(8))
    assert live.run.graph().step("sums").partitions == 6
    assert "rebalance sums to 6" in str(live.run.history()[-1])
    counted = {row["k"]: row["n"] for row in live.run.read_result("sums").to_pylist()}
    rows = [key for number in range(9) for key, _ in skewed(number)]
    assert counted == {key: rows.count(key) for key in set(rows)}
    undone = live.undo()
    assert undone.phase is Phase.WAITING
    live.epoch(*skewed(9))
    assert live.run.graph().step("sums").partitions == 4


def test_rebalancing_what_cannot_be(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    with pytest.raises(ChangeError, match="BAD_RANGES"):
        live.run.plan(ms.Rebalance("sums", 0))
    with pytest.raises(ChangeError, match="WRONG_KIND_OF_STEP"):
        live.run.plan(ms.Rebalance("clean"))
    with pytest.raises(ChangeError, match="UNKNOWN_STEP"):
        live.run.plan(ms.Rebalance("nothing"))
