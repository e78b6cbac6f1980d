from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.hashspace import HASH_END, HASH_MIN, HashRange, even_ranges, ranges_from, subkey_hashes

HASH = st.integers(HASH_MIN, HASH_END - 1)


@given(st.integers(1, 5000), HASH)
def test_even_ranges_cover_the_space_without_overlap(count: int, value: int) -> None:
    ranges = even_ranges(count)
    assert len(ranges) == count
    assert ranges[0].start == HASH_MIN
    assert ranges[-1].end == HASH_END
    assert all(a.end == b.start for a, b in pairwise(ranges))
    assert sum(r.start <= value < r.end for r in ranges) == 1


@given(st.integers(1, 300))
def test_even_ranges_are_of_equal_width_to_one_place(count: int) -> None:
    widths = [r.end - r.start for r in even_ranges(count)]
    assert max(widths) - min(widths) <= 2**40


@given(HASH, HASH)
def test_a_subkey_stays_in_the_partition_of_its_group(group: int, subkey: int) -> None:
    mixed = int(subkey_hashes(np.array([group]), np.array([subkey]))[0])
    assert mixed >> 40 == group >> 40


@given(st.lists(HASH, min_size=1), st.integers(1, 9), st.data())
def test_the_slice_of_a_range_is_its_members(hashes: list[int], count: int, data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(even_ranges(count)))
    ascending = np.sort(np.array(hashes, dtype=np.int64))
    expected = [h for h in ascending.tolist() if wanted.start <= h < wanted.end]
    assert ascending[wanted.slice_of(ascending)].tolist() == expected


@pytest.mark.parametrize("starts", [[], [0], [HASH_MIN, 5], [HASH_MIN, HASH_MIN]])
def test_ranges_that_make_no_sense_are_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"range"):
        ranges_from(starts)


def test_a_range_may_not_be_empty() -> None:
    with pytest.raises(ValueError, match="not a range"):
        HashRange(5, 5)
