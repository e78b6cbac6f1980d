"""How far event time has come, by source and by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.eventtime.watermarks import Mark, advanced, reached
from midstream.state.manifest import SourceTime

SECOND = 1_000_000
BIDS = {"bids": Mark(10 * SECOND)}


def test_the_latest_time_less_the_delay() -> None:
    times = advanced({}, BIDS, {"bids": 100 * SECOND}, now=5.0)
    assert times == {"bids": SourceTime(90 * SECOND, 5.0)}


def test_it_never_goes_back() -> None:
    times = advanced({}, BIDS, {"bids": 100 * SECOND}, now=5.0)
    times = advanced(times, BIDS, {"bids": 40 * SECOND}, now=6.0)
    assert times == {"bids": SourceTime(90 * SECOND, 6.0)}
    assert advanced(times, BIDS, {"bids": None}, now=7.0) == times


def test_a_source_without_rows_is_idle_after_a_while() -> None:
    marks = {"bids": Mark(0, idle_after=3 * SECOND)}
    times = advanced({}, marks, {}, now=100.0)
    assert times == {"bids": SourceTime(None, 100.0)}
    assert advanced(times, marks, {}, now=102.9) == times
    idle = advanced(times, marks, {}, now=103.0)
    assert idle["bids"].idle
    assert advanced(idle, marks, {"bids": 7}, now=104.0) == {"bids": SourceTime(7, 104.0)}


def test_the_least_source_counts() -> None:
    assert reached(None, [SourceTime(7), SourceTime(5)]) == 5
    assert reached(None, [SourceTime(7), SourceTime(None)]) is None
    assert reached(3, [SourceTime(7), SourceTime(None)]) == 3
    assert reached(None, [SourceTime(7), SourceTime(5, idle=True)]) == 7
    assert reached(6, [SourceTime(7), SourceTime(5)]) == 6, "one that was idle is back"
    assert reached(6, [SourceTime(9, idle=True)]) == 6
    assert reached(None, []) is None


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(-(10**9), 10**9))))
def test_nothing_ever_goes_back(epochs: list[dict[str, int | None]]) -> None:
    marks = {"a": Mark(5), "b": Mark(0, idle_after=2 * SECOND)}
    times: dict[str, SourceTime] = {}
    step: int | None = None
    for number, latest in enumerate(epochs):
        before, times = times, advanced(times, marks, latest, now=float(number))
        after = reached(step, times.values())
        for id_, known in before.items():
            if known.watermark is not None:
                now = times[id_].watermark
                assert now is not None
                assert now >= known.watermark
        if step is not None:
            assert after is not None
            assert after >= step
        step = after
