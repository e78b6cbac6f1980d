"""Changes that are rejected cost the stream nothing once they are: the same plan, the same state, the same epochs."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

import midstream as ms
from midstream.coordinator.modification import Phase
from tests.modify.live import Live
from tests.modify.test_apply import counting
from tests.modify.test_refused import raises, wrong_columns

ROUNDS, EPOCHS = 10, 6
ROWS = [(f"k{number}", number) for number in range(2000)]
REJECTED: list[Any] = [
    ms.Replace("count", raises),
    ms.Replace("count", wrong_columns),
    ms.Insert("x", sql="SELECT nothing FROM input", after="events"),
    ms.Rescale("count", 5000),
    ms.Remove("nothing"),
]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_rejected_changes_leave_throughput_as_it_was(live: Live) -> None:
    """Epochs right after a rejection against those right before it, by turns in one run."""

    def epochs() -> list[float]:
        for _ in range(EPOCHS):
            live.epoch(*ROWS)
        return [report.duration_ms for report in live.run.epochs(EPOCHS)]

    live.start(counting(live), *ROWS)
    for _ in range(4):
        epochs()  # until the JVM has compiled what it will
    ranges = live.run._runner.last.steps["count"].ranges
    before: list[float] = []
    after: list[float] = []
    for number in range(ROUNDS):
        before += epochs()
        rejected = live.submit(REJECTED[number % len(REJECTED)])
        assert rejected.phase is Phase.REJECTED, rejected
        after += epochs()
    ratio = median(after) / median(before)
    print(f"epoch after a rejection vs before: {median(after):.0f} / {median(before):.0f} ms = {ratio:.3f}")
    assert ratio < 1.1
    last = live.run._runner.last
    assert {report.plan for report in live.run.epochs()} == {1}
    assert last.steps["count"].ranges == ranges
    counted = {row["k"]: row["n"] for row in live.run.read_state("count").to_pylist()}
    assert counted == {key: last.epoch + 1 for key, _ in ROWS}
