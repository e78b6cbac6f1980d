"""Split keys: one that is too much for an instance has parts of its state at several places of the hash space.

Part 0 is where the key itself hashes to. The others are as far from each other as the hash space allows, so that they
lie in different partitions, whatever their number. A part is a row like any other: only who asks for the key must know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from midstream.state.hashspace import HASH_MIN, PLACE_BITS, SUBKEY_BITS, HashRange
from midstream.state.tables import Hashes

MOST_WAYS = 64


@dataclass(frozen=True, order=True)
class Split:
    """A hash whose key has its state in so many parts."""

    hash: int
    ways: int

    def __post_init__(self) -> None:
        if not 1 <= self.ways <= MOST_WAYS:
            raise ValueError(f"a key is split in at most {MOST_WAYS} parts, not {self.ways}")

    @property
    def places(self) -> tuple[int, ...]:
        """The hashes of its parts. Only the upper bits differ: ranges begin at multiples of the lower ones, which are
        free for sub-keys.

        >>> Split(5, 2).places
        (5, -9223372036854775803)
        """
        own, below = (self.hash - HASH_MIN) >> SUBKEY_BITS, self.hash % 2**SUBKEY_BITS
        places = ((own + (part << PLACE_BITS) // self.ways) % 2**PLACE_BITS for part in range(self.ways))
        return tuple(HASH_MIN + (place << SUBKEY_BITS) + below for place in places)


def hashes_of(splits: Iterable[Split]) -> Hashes:
    """The hashes of all parts, ascending."""
    return np.unique(np.array([place for split in splits for place in split.places], np.int64))


def whole_at(splits: Iterable[Split]) -> dict[int, int]:
    """By the hash of a part, that of its key."""
    return {place: split.hash for split in splits for place in split.places}


def divided_anew(before: Iterable[Split], after: Iterable[Split]) -> Iterator[tuple[Split, Split]]:
    """The keys that get other parts than they had. One that is whole has one part."""
    had, get = ({split.hash: split for split in splits} for splits in (before, after))
    for hash_ in sorted(had.keys() | get.keys()):
        whole = Split(hash_, 1)
        old, new = had.get(hash_, whole), get.get(hash_, whole)
        if old != new:
            yield old, new


def place_around(hash_: int) -> HashRange:
    """All hashes that share their upper bits with this one: where rows by sub-key are."""
    start = hash_ - hash_ % 2**SUBKEY_BITS
    return HashRange(start, start + 2**SUBKEY_BITS)


def split_sql(hash_sql: str, splits: Sequence[Split], part_sql: str) -> str:
    """A Spark SQL expression that gives the hash a row goes by: that of the key, or of a part of it. `part_sql` says
    which, as an integer of any size."""
    if not splits:
        return hash_sql
    cases = [
        f"WHEN {split.hash}L THEN element_at(array({', '.join(f'{place}L' for place in split.places)}),"
        f" CAST(pmod({part_sql}, {split.ways}) AS INT) + 1)"
        for split in splits
    ]
    return f"CASE {hash_sql} {' '.join(cases)} ELSE {hash_sql} END"
