"""The 64-bit hash space: bins are prefixes of it, partitions are contiguous ranges of it.

Hashes are signed 64-bit integers as Spark's `xxhash64` gives them, in their natural order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from midstream.state.tables import Hashes, Mask

HASH_MIN = -(2**63)
HASH_END = 2**63
"""One past the largest hash. Ranges are half open, so the last one ends here."""

BIN_BITS = 11
BINS = 2**BIN_BITS

PLACE_BITS = 24
"""Ranges begin at multiples of 2**40: 16.7 million places, fine enough for any parallelism and any skew.

The lower 40 bits are free for a *sub-key*: a table may store many rows of one group under hashes that share the group's
upper bits, so they stay in the group's partition and are still found by binary search (see `subkey_hashes`).
"""
SUBKEY_BITS = 64 - PLACE_BITS
SUBKEY_MASK = np.int64(2**SUBKEY_BITS - 1)


@dataclass(frozen=True, order=True)
class HashRange:
    """A half-open range of the hash space: `start <= hash < end`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not HASH_MIN <= self.start < self.end <= HASH_END:
            raise ValueError(f"not a range of the hash space: {self.start}..{self.end}")

    def __contains__(self, hash_: int) -> bool:
        return self.start <= hash_ < self.end

    def holds(self, hashes: Hashes) -> Mask:
        """Which of some hashes lie in this range."""
        return (hashes >= self.start) & (hashes <= self.end - 1)

    def overlaps(self, first: int, last: int) -> bool:
        """Whether any hash of the closed interval `first..last` lies in this range."""
        return first < self.end and last >= self.start

    def slice_of(self, hashes: Hashes) -> slice:
        """The part of an ascending array of hashes that lies in this range."""
        low = int(np.searchsorted(hashes, self.start, "left"))
        if self.end == HASH_END:
            return slice(low, len(hashes))
        return slice(low, int(np.searchsorted(hashes, self.end, "left")))


WHOLE = HashRange(HASH_MIN, HASH_END)


def even_ranges(count: int) -> tuple[HashRange, ...]:
    """Cut the hash space into `count` ranges of equal width (to one place).

    >>> [r.start for r in even_ranges(2)]
    [-9223372036854775808, 0]
    """
    if not 1 <= count <= 2**PLACE_BITS:
        raise ValueError(f"between 1 and {2**PLACE_BITS} ranges, not {count}")
    starts = [-((-i << PLACE_BITS) // count) for i in range(count + 1)]
    return ranges_from([HASH_MIN + (place << SUBKEY_BITS) for place in starts[:-1]])


def ranges_from(starts: Sequence[int]) -> tuple[HashRange, ...]:
    """The ranges that begin at the given hashes; the first must be the smallest hash there is."""
    if not starts or starts[0] != HASH_MIN:
        raise ValueError("the first range begins at the smallest hash")
    if any(start % 2**SUBKEY_BITS for start in starts):
        raise ValueError(f"ranges begin at multiples of 2**{SUBKEY_BITS}")
    return tuple(HashRange(a, b) for a, b in pairwise([*starts, HASH_END]))


def number_of(hash_: int, ranges: Sequence[HashRange]) -> int:
    """Which of ranges that cover the hash space, in order, a hash lies in.

    >>> number_of(5, even_ranges(2))
    1
    """
    return bisect_right(ranges, hash_, key=lambda range_: range_.start) - 1


def subkey_hashes(groups: Hashes, subkeys: Hashes) -> Hashes:
    """Hashes for rows of a group told apart by a sub-key: the group's place, the sub-key's lower bits."""
    return (groups & ~SUBKEY_MASK) | ((groups ^ subkeys) & SUBKEY_MASK)


def partition_sql(hash_column: str, ranges: Sequence[HashRange]) -> str:
    """A Spark SQL expression that gives the number of the range a hash lies in."""
    if tuple(ranges) == even_ranges(len(ranges)):
        place = f"(shiftright({hash_column}, {SUBKEY_BITS}) + {2 ** (PLACE_BITS - 1)})"
        return f"CAST(shiftright({place} * {len(ranges)}L, {PLACE_BITS}) AS INT)"
    return _bisect_sql(hash_column, [r.start for r in ranges], 0, len(ranges))


def _bisect_sql(column: str, starts: list[int], low: int, high: int) -> str:
    if high - low == 1:
        return str(low)
    middle = (low + high) // 2
    left = _bisect_sql(column, starts, low, middle)
    right = _bisect_sql(column, starts, middle, high)
    return f"CASE WHEN {column} < {starts[middle]}L THEN {left} ELSE {right} END"
