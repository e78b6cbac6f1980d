"""Heat of bins: counted as a plain count would, cooling, and cut into parts that have equally much to do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.hashspace import BINS, HASH_END, HASH_MIN, WHOLE, HashRange, even_ranges
from midstream.state.heat import DECAY, Heat, bin_counts
from midstream.state.keys import group_rows
from midstream.state.tables import Groups

HASHES = st.integers(HASH_MIN, HASH_END - 1)


def heat_of(everywhere: float, more: dict[int, float]) -> Heat:
    bins = np.full(BINS, everywhere)
    for bin_, heat in more.items():
        bins[bin_] += heat
    return Heat(bins)


HEATS = st.builds(heat_of, st.floats(0, 1e6), st.dictionaries(st.integers(0, BINS - 1), st.floats(0, 1e9)))


def groups_of(hashes: list[int]) -> Groups:
    found = np.array(hashes, np.int64)
    return group_rows(found, pa.table({"k": found}))


def bin_of(hash_: int) -> int:
    return (hash_ - HASH_MIN) * BINS // 2**64


@given(st.lists(st.one_of(HASHES, st.sampled_from([HASH_MIN, HASH_END - 1, 0, -1, 2**53, 2**53 - 1]))))
def test_rows_are_counted_by_bin(hashes: list[int]) -> None:
    counted = Heat.none().after([bin_counts(groups_of(hashes))]) if hashes else Heat.none()
    expected = np.bincount([bin_of(h) for h in hashes], minlength=BINS) if hashes else np.zeros(BINS)
    assert np.allclose(counted.bins, expected * (1 - DECAY))


def test_what_is_not_used_cools() -> None:
    heat = Heat.none().after([bin_counts(groups_of([5] * 1000))])
    assert abs(heat.of(WHOLE) - 100) < 1e-6
    for _ in range(7):
        heat = heat.after([])
    assert 45 < heat.of(WHOLE) < 50


@given(HEATS, st.integers(1, 64))
def test_parts_are_equally_hot_to_a_bin(heat: Heat, parts: int) -> None:
    ranges = heat.cut(parts)
    assert len(ranges) == parts
    assert ranges[0].start == HASH_MIN
    assert ranges[-1].end == HASH_END
    share = heat.of(WHOLE) / parts
    # Heat is taken to be even within a bin, and a thousandth of it is spread over everything. Each may lack a place,
    # of which a bin has 8192, and the last one makes up for all of them.
    rounded = parts * float(heat.bins.max()) / 2**13
    assert all(abs(heat.of(r) - share) <= heat.of(WHOLE) * 2e-3 + 1e-3 + rounded for r in ranges)


def test_a_hot_key_is_not_taken_for_a_bin_that_can_be_cut() -> None:
    """Two in five rows are of one key, in a bin like any other: of five ranges one has it, and the others a share each
    of the rest."""
    key = HASH_MIN + 2**61 + 2**50
    bins = np.full(BINS, 1.0)
    bins[(key - HASH_MIN) // 2**53] += BINS * 2 / 3

    def of(range_: HashRange) -> float:
        rest = BINS * (range_.end - range_.start) / 2**64
        return rest + (BINS * 2 / 3 if range_.start <= key < range_.end else 0.0)

    rest = [of(range_) for range_ in Heat(bins).cut(5, {key: BINS * 2 / 3}) if not range_.start <= key < range_.end]
    assert len(rest) == 4
    assert max(rest) < 1.35 * BINS / 4, "three on one side, one on the other"
    assert max(of(range_) for range_ in Heat(bins).cut(2, {key: BINS * 2 / 3})) < 0.61 * (BINS * 5 / 3)


@given(HEATS, st.lists(st.integers(HASH_MIN, HASH_END - 1), max_size=5, unique=True), st.integers(1, 20))
def test_no_range_has_more_than_it_must(heat: Heat, hashes: list[int], parts: int) -> None:
    """Not more than an equal share and the hottest key together."""
    keys = {hash_: 0.9 * float(heat.bins[(hash_ - HASH_MIN) // 2**53]) for hash_ in hashes}
    ranges = heat.cut(parts, keys)
    assert len(ranges) == parts
    whole, hottest = heat.of(WHOLE), max(keys.values(), default=0.0)
    points, below = heat._profile(keys)
    places = [(edge - HASH_MIN) // 2**40 for edge in (*(range_.start for range_ in ranges), HASH_END)]
    loads = np.diff(np.interp(places, points, below))
    rounded = float(heat.bins.max()) / 2**13  # cuts lie on places, of which a bin has 8192
    assert max(loads) <= (whole / parts + hottest) * 1.002 + 1e-2 + rounded


def test_cuts_lie_on_places() -> None:
    """Twelve ranges cannot have a share each to the row: a place of the hottest bin has 0.08."""
    bins = np.zeros(BINS)
    bins[:2] = 687, 35
    ranges = Heat(bins).cut(12)
    assert max(Heat(bins).of(range_) for range_ in ranges) <= 722 / 12 * 1.002 + 687 / 2**13


def test_nothing_known_is_cut_evenly() -> None:
    assert Heat.none().cut(4) == even_ranges(4)
    everything_in_one_place = np.zeros(BINS)
    everything_in_one_place[7] = 1e9
    assert len(set(Heat(everything_in_one_place).cut(4096))) == 4096, "no range is empty"


@given(HEATS)
def test_it_is_written_down_closely_enough(heat: Heat) -> None:
    found = Heat.decode(heat.encode())
    assert np.all(np.abs(found.bins - heat.bins) <= 0.09 * heat.bins + 0.1)
    assert Heat.decode(found.encode()) == found


def test_heat_of_a_part_of_a_bin() -> None:
    bins = np.zeros(BINS)
    bins[0] = 8.0
    quarter = HashRange(HASH_MIN, HASH_MIN + 2**51)
    assert abs(Heat(bins).of(quarter) - 2.0) < 1e-9
