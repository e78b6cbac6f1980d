"""Heat: how busy each bin of the hash space has been lately. It says what to fetch first and where to cut ranges."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from midstream.state.hashspace import BIN_BITS, BINS, HASH_MIN, PLACE_BITS, HashRange, even_ranges, ranges_from
from midstream.state.splits import Split, whole_at
from midstream.state.tables import Groups

_BIN_WIDTH = 2 ** (64 - BIN_BITS)
_PLACE_WIDTH = 2 ** (64 - PLACE_BITS)
_EDGES = np.arange(1, BINS, dtype=np.int64) * np.int64(_BIN_WIDTH) + np.int64(HASH_MIN)

DECAY = 0.9
"""What is left of a bin's heat after an epoch: half of it after seven."""

_STEPS = 8
"""Heat is written down as a logarithm, so many steps a power of two: within 9 %, which no decision depends on."""

BinCounts: TypeAlias = tuple[int, bytes]
"""Rows by bin as a task reports them: the number of the first bin, and counts from there on as 32-bit integers."""


HOT_SHARE = 0.5
"""Of what an instance has to do if all have equally much: what has more than that, a bin or a key, is hot."""

_HALVINGS = 20
"""Of what the hottest range may have: it is known to a millionth then."""
_ROUNDING = 1e-3
"""Of a place."""

KeyCounts: TypeAlias = tuple[tuple[int, int], ...]
"""Hashes of keys with many rows, as a task reports them, and how many."""

_HOT_ROWS, _HOT_PART = 32, 1 / 32
"""Rows of a key, and its part of the rows of a task, from which on it is told of."""
_HOT_KEYS = 64
"""How many of them are remembered."""


@dataclass(frozen=True, eq=False)
class Heat:
    """Rows an epoch by bin, older epochs counting less and less."""

    bins: npt.NDArray[np.float64]

    @classmethod
    def none(cls) -> Heat:
        return cls(np.zeros(BINS))

    def after(self, reports: Iterable[BinCounts]) -> Heat:
        """The heat one epoch later. Reports of an epoch that had no rows leave everything to cool."""
        bins = self.bins * DECAY
        for first, data in reports:
            counts = np.frombuffer(data, np.uint32)
            bins[first : first + len(counts)] += counts * (1 - DECAY)
        return Heat(bins)

    @cached_property
    def _below(self) -> npt.NDArray[np.float64]:
        """Heat below each edge of a bin."""
        return np.concatenate([[0.0], np.cumsum(self.bins)])

    def of(self, range: HashRange) -> float:
        """The heat of a range, taking a bin for evenly hot."""
        places = [(edge - HASH_MIN) / _BIN_WIDTH for edge in (range.start, range.end)]
        low, high = np.interp(places, np.arange(BINS + 1), self._below)
        return float(high - low)

    def moved(self, rows: float, before: Sequence[int], after: Sequence[int]) -> Heat:
        """The heat if so many rows come to other hashes, evenly, than they did."""
        bins = self.bins.copy()
        for hashes, each in ((before, -rows / len(before)), (after, rows / len(after))):
            for hash_ in hashes:
                bins[(hash_ - HASH_MIN) // _BIN_WIDTH] += each
        return Heat(np.maximum(bins, 0.0))

    def cut(self, parts: int, keys: Mapping[int, float] = MappingProxyType({})) -> tuple[HashRange, ...]:
        """As many ranges, the hottest of which is as little hot as can be, as far as bins and the rows of hot keys by
        hash tell: a key cannot be cut, and one that is hotter than all that gets a range of its own. Even ones where
        nothing is known."""
        if not self.bins.any():
            return even_ranges(parts)
        points, below = self._profile(keys)
        low, high = 0.0, float(below[-1])
        for _ in range(_HALVINGS):
            most = (low + high) / 2
            places = _filled(points, below, parts, most)
            fits = below[-1] - np.interp(places[-1] if places else 0, points, below) <= most
            low, high = (low, most) if fits else (most, high)
        places = _filled(points, below, parts, high)
        room = np.clip(places, np.arange(1, parts), 2**PLACE_BITS - np.arange(parts - 1, 0, -1))
        return ranges_from([HASH_MIN, *(HASH_MIN + int(place) * _PLACE_WIDTH for place in room)])

    def _profile(self, keys: Mapping[int, float]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Places at which ranges may begin, and the heat below each: in a bin it rises evenly, and at a hot key by what
        that has."""
        rest, jumps = self.bins.copy(), np.zeros(len(keys))
        at = np.array([(hash_ - HASH_MIN) // _PLACE_WIDTH for hash_ in sorted(keys)], np.int64)
        for number, hash_ in enumerate(sorted(keys)):
            bin_ = (hash_ - HASH_MIN) // _BIN_WIDTH
            jumps[number] = min(keys[hash_], rest[bin_])
            rest[bin_] -= jumps[number]
        # A little everywhere, so that cold stretches are cut evenly, too, and no range is empty.
        rest += max(self.bins.sum(), 1.0) * 1e-3 / BINS
        edges = np.arange(BINS + 1) * float(_BIN_WIDTH // _PLACE_WIDTH)
        points = np.unique(np.concatenate([edges, at, at + 1]).astype(np.float64))
        even = np.interp(points, edges, np.concatenate([[0.0], np.cumsum(rest)]))
        stepped = np.concatenate([[0.0], np.cumsum(jumps)])[np.searchsorted(at + 1, points, "right")]
        return points, even + stepped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heat) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())

    def encode(self) -> str:
        levels = np.minimum(np.rint(np.log2(1 + self.bins) * _STEPS), 255).astype(np.uint8)
        return base64.b64encode(zlib.compress(levels.tobytes(), 1)).decode()

    @classmethod
    def decode(cls, text: str) -> Heat:
        levels = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
        if len(levels) != BINS:
            raise ValueError(f"heat of {len(levels)} bins, not {BINS}")
        return cls(np.exp2(levels / _STEPS) - 1)


@dataclass(frozen=True)
class HotKeys:
    """Keys that have had many rows lately, by hash: rows an epoch, older epochs counting less and less."""

    rows: Mapping[int, float] = field(default_factory=dict)

    def after(self, reports: Iterable[KeyCounts], splits: Sequence[Split]) -> HotKeys:
        """Those one epoch later. What the parts of a key had counts for the key."""
        rows = {hash_: count * DECAY for hash_, count in self.rows.items()}
        whole = whole_at(splits)
        for counts in reports:
            for hash_, count in counts:
                key = whole.get(hash_, hash_)
                rows[key] = rows.get(key, 0.0) + count * (1 - DECAY)
        hottest = sorted(rows.items(), key=lambda item: -item[1])[:_HOT_KEYS]
        return HotKeys({hash_: count for hash_, count in hottest if count >= 1})

    def encode(self) -> list[tuple[int, float]]:
        return [(hash_, round(count, 1)) for hash_, count in self.rows.items()]

    @classmethod
    def decode(cls, body: Iterable[Sequence[float]]) -> HotKeys:
        return cls({int(hash_): float(count) for hash_, count in body})


def _filled(points: npt.NDArray[np.float64], below: npt.NDArray[np.float64], parts: int, most: float) -> list[int]:
    """Where ranges end that are filled one after the other with so much at most, but for a place that has more."""
    places = [0]
    for _ in range(parts - 1):
        full = float(np.interp(places[-1], points, below)) + most
        places.append(max(int(np.interp(full, below, points) + _ROUNDING), places[-1] + 1))
    return places[1:]


def key_counts(groups: Groups) -> KeyCounts:
    """The keys that have a good part of these rows."""
    sizes = groups.sizes
    many = np.flatnonzero(sizes >= max(_HOT_ROWS, len(groups.order) * _HOT_PART))
    return tuple(zip(groups.hashes[many].tolist(), sizes[many].tolist(), strict=True))


def bin_counts(groups: Groups) -> BinCounts:
    """Rows by bin. Groups are sorted by hash, so this looks at the edges of bins and not at the rows."""
    if not len(groups):
        return 0, b""
    first = int((int(groups.hashes[0]) - HASH_MIN) // _BIN_WIDTH)
    last = int((int(groups.hashes[-1]) - HASH_MIN) // _BIN_WIDTH)
    edges = np.searchsorted(groups.hashes, _EDGES[first:last], "left")
    starts = np.append(groups.starts, len(groups.order))
    rows = np.diff(starts[np.concatenate([[0], edges, [len(groups)]])])
    return first, rows.astype(np.uint32).tobytes()
