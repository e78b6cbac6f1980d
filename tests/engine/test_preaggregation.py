"""When rows are aggregated before the exchange: when few are left by it, and when one key has too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.preaggregation import hottest_share
from midstream.task.report import TaskReport
from tests.engine.harness import Inbox

ROWS = 24_000
INSTANCES = 4


def keys(hot: float) -> list[tuple[int]]:
    """Mostly keys that come but once, and one with a share of all rows."""
    often = round(ROWS * hot)
    return [(0,)] * often + [(key,) for key in range(1, ROWS - often + 1)]


@pytest.mark.parametrize(("hot", "split"), [(0.2, True), (0.02, False)], ids=["a hot key", "no hot key"])
def test_a_hot_key_is_divided_among_the_tasks_before_the_exchange(
    spark: SparkSession, tmp_path: Path, hot: float, split: bool
) -> None:
    inbox = Inbox(tmp_path / "in", "k bigint")
    counts = inbox.source().key_by("k").aggregate("counts", n=F.count("*"), parallelism=INSTANCES)
    run = counts.sink("out", ms.sinks.memory()).start(spark, str(tmp_path / "checkpoint"))
    drained: list[dict[str, list[TaskReport]]] = []
    drain = run._runner.box.drain

    def remembered(*arguments: Any) -> dict[str, list[TaskReport]]:
        drained.append(drain(*arguments))
        return drained[-1]

    run._runner.box.drain = remembered  # type: ignore[method-assign]
    try:
        for _ in range(4):
            inbox.add(*keys(hot))
            run.process_available()
        tried, first, *later = [[report.arrived for report in reports["counts"]] for reports in drained]
        assert sum(tried) < ROWS, "the first epoch is aggregated, to see what that is good for"
        assert sum(first) == ROWS, "not enough for being worth it by itself"
        for arrived in later:
            if split:
                assert max(arrived) < 1.1 * sum(arrived) / INSTANCES, "no instance has more to do than the others"
            else:
                assert arrived == first
        assert max(first) > (1.5 if split else 0.9) * ROWS / INSTANCES
        counted = {row["k"]: row["n"] for row in run.read_result("counts").to_pylist()}
        assert counted[0] == 4 * round(ROWS * hot)
        assert set(counted.values()) == {4, counted[0]}
    finally:
        run.stop()


def report(heat: tuple[int, bytes] | None) -> TaskReport:
    return TaskReport("run", "step", 0, "attempt", 0, 0, 0, 0, 0.0, heat=heat)


def test_the_hottest_bin() -> None:
    assert hottest_share([]) == 0.0
    assert hottest_share([report(None), report((0, b""))]) == 0.0
    one, three = (1).to_bytes(4, "little"), (3).to_bytes(4, "little")
    assert hottest_share([report((5, one + three)), report((9, one))]) == 0.6
