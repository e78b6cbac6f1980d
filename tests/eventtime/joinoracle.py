"""What joins must give, computed pair by pair and epoch by epoch in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, int, int]
"""A key, a time in seconds, and a value."""

Result = Counter[tuple[Any, ...]]


@dataclass
class Clock:
    """The watermarks of both sources, and the least of them."""

    delay: int
    marks: dict[str, int | None] = field(default_factory=lambda: {"left": None, "right": None})
    reached: int | None = None

    def advance(self, left: list[Row], right: list[Row]) -> int | None:
        for side, rows in (("left", left), ("right", right)):
            if rows:
                latest = max(time for _, time, _ in rows) - self.delay
                known = self.marks[side]
                self.marks[side] = latest if known is None else max(known, latest)
        marks = list(self.marks.values())
        if None not in marks:
            least = min(mark for mark in marks if mark is not None)
            self.reached = least if self.reached is None else max(self.reached, least)
        return self.reached


def joined(how: str, left: list[Row], right: list[Row], fits: Any) -> Result:
    """The join of rows as SQL has it."""
    found: Result = Counter()
    partners: set[int] = set()
    for k, t, v in left:
        mine = [n for n, (k2, t2, _) in enumerate(right) if k is not None and k == k2 and fits(t, t2)]
        partners |= set(mine)
        if how == "semi":
            found += Counter([(k, t, v)] if mine else [])
        elif how == "anti":
            found += Counter([] if mine else [(k, t, v)])
        else:
            found += Counter((k, t, v, right[n][1], right[n][2]) for n in mine)
            if not mine and how in ("left", "full"):
                found[k, t, v, None, None] += 1
    if how in ("right", "full"):
        found += Counter((k, None, None, t, v) for n, (k, t, v) in enumerate(right) if n not in partners)
    return found


@dataclass
class WindowJoins:
    size: int
    how: str
    delay: int = 0
    left: list[Row] = field(default_factory=list)
    right: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock(self.delay)

    def epoch(self, left: list[Row], right: list[Row]) -> Result:
        before = self.clock.reached
        self.left += [row for row in left if before is None or self._end(row) > before]
        self.right += [row for row in right if before is None or self._end(row) > before]
        now = self.clock.advance(left, right)
        if now is None:
            return Counter()
        over = [[row for row in side if self._end(row) <= now] for side in (self.left, self.right)]
        self.left = [row for row in self.left if self._end(row) > now]
        self.right = [row for row in self.right if self._end(row) > now]
        return joined(self.how, over[0], over[1], lambda a, b: a // self.size == b // self.size)

    def _end(self, row: Row) -> int:
        return row[1] // self.size * self.size + self.size


@dataclass
class IntervalJoins:
    """Right rows from `before` seconds before the left row to `after` seconds after it."""

    before: int
    after: int
    how: str
    delay: int = 0
    left: list[Row] = field(default_factory=list)
    right: list[Row] = field(default_factory=list)
    given: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.clock = Clock(self.delay)

    def fits(self, left: int, right: int) -> bool:
        return -self.before <= right - left <= self.after

    def epoch(self, left: list[Row], right: list[Row]) -> Result:
        mark = self.clock.reached
        new = [[row for row in side if mark is None or row[1] >= mark] for side in (left, right)]
        pairs = joined("inner", self.left + new[0], self.right + new[1], self.fits) - joined(
            "inner", self.left, self.right, self.fits
        )
        self.left += new[0]
        self.right += new[1]
        found = pairs if self.how in ("inner", "left", "right", "full") else Counter()
        now = self.clock.advance(left, right)
        if now is None or self.how == "inner":
            return found
        alone = joined(self.how, self.left, self.right, self.fits) - (
            joined("inner", self.left, self.right, self.fits) if self.how in ("left", "right", "full") else Counter()
        )
        for row, count in alone.items():
            is_left = len(row) == 3 or row[2] is not None
            last = row[1] + self.after if is_left else row[3] + self.before
            if last < now and (mark is None or last >= mark):
                found[row] += count
        return found
