"""Guards on changes: a promise that does not hold takes the change back."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import midstream as ms
from midstream.changes.change import Guard
from midstream.coordinator.modification import Phase
from midstream.errors import MidstreamError
from tests.modify.live import Live
from tests.modify.test_apply import sums


def negated(df: DataFrame) -> DataFrame:
    return df.withColumn("v", -F.col("v"))


def all_positive(df: DataFrame) -> bool:
    return df.where("v < 0").isEmpty()


def raises(df: DataFrame) -> bool:
    raise ValueError("cannot look")


def undone(live: Live) -> Any:
    """Wait until the automatic undo waits for its epoch, and run that."""
    deadline = time.monotonic() + 60
    while len(live.run.history()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    live.settled(live.run.modification(2))
    live.epoch(("z", 1))
    return live.run.modification(1)


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        (Guard(errors="v < 0"), "1 of 1 rows for which v < 0"),
        (Guard(errors="v < 0", error_rate=0.5), "1 of 1 rows"),
        (Guard(check=all_positive), "its check said no"),
        (Guard(check=raises), "raised ValueError.*test_guards.py.*cannot look"),
        (Guard(max_epoch_ms=0.1), "promised were 0 at most"),
    ],
    ids=["no errors", "few errors", "a check", "a check that raises", "time"],
)
def test_a_broken_promise_undoes_the_change(live: Live, guard: Guard, expected: str) -> None:
    live.start(sums(live), ("a", 1))
    assert live.change(ms.Replace("clean", negated, guard=guard), ("a", 5)) == [{"k": "a", "n": 2, "s": -4}]
    modification = undone(live)
    assert modification.phase is Phase.UNDONE
    assert re.search(expected, str(modification.reason)), modification.reason
    assert live.epoch(("a", 5)) == [{"k": "a", "n": 3, "s": 1}]


def test_a_guard_on_a_keyed_step(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    more = {"n": F.count("*"), "s": F.sum("v"), "m": F.min("v")}
    change = ms.Replace("sums", aggregate=more, guard=Guard(errors="n > 3", epochs=5))
    assert live.change(change, ("a", 5)) == [{"k": "a", "n": 2, "s": 6, "m": 5}]
    live.epoch(("a", 1))
    assert len(live.run.history()) == 1
    live.epoch(("a", 1))
    assert undone(live).phase is Phase.UNDONE


def test_a_promise_that_holds_ends_after_its_epochs(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    live.change(ms.Replace("clean", negated, guard=Guard(errors="v > 0", epochs=2)), ("a", 5))
    live.epoch(("a", 5))
    live.epoch(("a", -5))
    time.sleep(0.3)
    assert [str(entry.modification.phase) for entry in live.run.history()] == ["applied"]
    assert live.run._modifier.current.watched == {}


@pytest.mark.parametrize("guard", [{}, {"errors": "v < 0", "epochs": 0}, {"errors": "v < 0", "error_rate": 2}])
def test_guards_that_make_no_sense(guard: dict[str, Any]) -> None:
    with pytest.raises(MidstreamError, match="BAD_GUARD"):
        Guard(**guard)
