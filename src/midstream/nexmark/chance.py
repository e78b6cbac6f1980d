"""Random numbers that depend on a seed and on what they are for, and on nothing before them.

So any event can be made alone, in any process, in any order, and is always the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

Numbers = npt.NDArray[np.int64]


class Chance:
    """Draws for each of some numbered things. Every draw has a name: equal names draw the same."""

    def __init__(self, seed: int, numbers: Numbers) -> None:
        self._seed = seed
        self._numbers = numbers.astype(np.uint64)

    def fraction(self, name: str) -> npt.NDArray[np.float64]:
        """Evenly spread over [0, 1)."""
        return (self._bits(name) >> np.uint64(11)).astype(np.float64) / float(1 << 53)

    def below(self, name: str, bound: int | Numbers) -> Numbers:
        """Whole numbers from 0 up to a bound, which may differ from thing to thing."""
        return np.asarray(np.floor(self.fraction(name) * bound), np.int64)

    def one_in(self, name: str, ratio: int) -> npt.NDArray[np.bool_]:
        """True for one of so many."""
        return np.asarray(self.below(name, ratio) == 0)

    def _bits(self, name: str) -> npt.NDArray[np.uint64]:
        # The finaliser of splitmix64 (Steele, Lea and Flood 2014) on a counter of its own for every name.
        salt = np.uint64(_salt(f"{self._seed}/{name}"))
        with np.errstate(over="ignore"):
            mixed = self._numbers * np.uint64(0x9E3779B97F4A7C15) + salt
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return mixed ^ (mixed >> np.uint64(31))


def _salt(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())
