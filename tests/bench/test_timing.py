from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.bench.timing import EpochTiming, epoch_timing, rows_per_second, wall_ms
from midstream.quantiles import percentile


def epoch(number: int, started: float, duration_ms: float, rows: int = 100) -> EpochTiming:
    return EpochTiming(number, rows, started, duration_ms, (number + 1) * rows)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([5], 50, 5), ([1, 2, 3], 50, 2), ([4, 1, 3, 2], 50, 2), (list(range(1, 101)), 99, 99), ([1, 9], 99, 9)],
)
def test_percentile_is_by_nearest_rank(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_percentile_is_a_value_that_occurred_and_grows(values: list[float], percent: float) -> None:
    assert percentile(values, percent) in values
    assert percentile(values, percent) <= percentile(values, 100) == max(values)


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


def test_rows_per_second_counts_the_gaps_between_epochs() -> None:
    assert rows_per_second([[epoch(0, 10.0, 400), epoch(1, 11.0, 1000)]]) == 100.0


def test_rows_per_second_does_not_count_the_time_between_rounds() -> None:
    rounds = [[epoch(0, 10.0, 1000)], [epoch(9, 500.0, 1000)]]

    assert rows_per_second(rounds) == 100.0


def test_wall_time_is_taken_between_neighbours_only() -> None:
    assert wall_ms([epoch(0, 10.0, 1), epoch(1, 10.5, 1), epoch(5, 60.0, 1)]) == [500.0]


def progress(start: dict[str, int] | None, end: dict[str, int] | None) -> dict[str, Any]:
    return {
        "batchId": 7,
        "timestamp": "2026-01-01T00:00:01.500Z",
        "durationMs": {"triggerExecution": 250, "addBatch": 200},
        "numInputRows": 999,
        "sources": [{"startOffset": start, "endOffset": end}],
    }


def test_rows_of_an_epoch_are_counted_by_offsets() -> None:
    timing = epoch_timing(progress({"offset": 500, "timestamp": 1}, {"offset": 800, "timestamp": 2}))

    assert (timing.epoch, timing.rows, timing.duration_ms, timing.end_offset) == (7, 300, 250, 800)
    assert timing.started % 60 == 1.5


def test_the_first_epoch_starts_at_nothing() -> None:
    assert epoch_timing(progress(None, {"offset": 800, "timestamp": 2})).rows == 800
