"""What windows must give, computed row by row and epoch by epoch in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Row = tuple[Any, int | None, int]
"""A key, a time in seconds (None for a row without one), and a value."""

START = datetime(2026, 3, 29, tzinfo=UTC)
"""A day on which clocks in Europe change at 01:00 UTC."""


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Windows:
    """Counts and sums by key and window of `size` seconds, of which one begins every `slide`."""

    size: int
    slide: int
    delay: int = 0
    lateness: int = 0
    early: bool = False
    watermark: int | None = None
    state: dict[tuple[Any, int], tuple[int, int]] = field(default_factory=dict)
    late_rows: int = 0

    def epoch(self, rows: Iterable[Row]) -> dict[tuple[Any, int], tuple[int, int]]:
        """What an epoch with these rows gives: by key and start of the window, its count and sum."""
        rows, before, given = list(rows), self.watermark, {}
        for key, time, value in rows:
            for start in self.starts(time):
                end = start + self.size
                if before is not None and end + self.lateness <= before:
                    self.late_rows += 1
                    continue
                n, total = self.state.get((key, start), (0, 0))
                self.state[key, start] = n + 1, total + value
                if self.early or (before is not None and end <= before):
                    given[key, start] = self.state[key, start]
        latest = max((time for _, time, _ in rows if time is not None), default=None)
        if latest is not None:
            self.watermark = latest - self.delay if before is None else max(before, latest - self.delay)
        if self.watermark is not None:
            for (key, start), value in self.state.items():
                end = start + self.size
                if end <= self.watermark and (before is None or end > before) and not self.early:
                    given[key, start] = value
            self.state = {w: v for w, v in self.state.items() if w[1] + self.size + self.lateness > self.watermark}
        return given

    def starts(self, time: int | None) -> list[int]:
        if time is None:
            return []
        last = time // self.slide * self.slide
        return [
            last - n * self.slide for n in range(self.size // self.slide) if last - n * self.slide + self.size > time
        ]


def flat(epochs: Sequence[dict[tuple[Any, int], tuple[int, int]]]) -> list[tuple[int, Any, int, int, int]]:
    return sorted(
        ((number, key, start, *value) for number, given in enumerate(epochs) for (key, start), value in given.items()),
        key=repr,
    )


@dataclass
class Sessions:
    """Counts and sums of sessions: rows of a key that are no further than `gap` seconds from each other."""

    gap: int
    delay: int = 0
    lateness: int = 0
    watermark: int | None = None
    rows: list[Row] = field(default_factory=list)
    late_rows: int = 0

    def epoch(self, rows: Iterable[Row]) -> dict[tuple[Any, int], tuple[int, int]]:
        """What an epoch with these rows gives: by key and start of the session, its end, count and sum."""
        rows, before, given = [row for row in rows if row[1] is not None], self.watermark, {}
        if before is not None:
            for session in self._sessions([*self.rows, *rows]):
                if self._end(session) + self.lateness <= before:
                    self.late_rows += len(session)
                    for row in session:
                        rows.remove(row)
        self.rows += rows
        latest = max((time for _, time, _ in rows if time is not None), default=None)
        if latest is not None:
            self.watermark = latest - self.delay if before is None else max(before, latest - self.delay)
        if self.watermark is not None:
            for session in self._sessions(self.rows):
                if self._end(session) + self.lateness <= self.watermark:
                    given[session[0][0], session[0][1]] = (len(session), sum(row[2] for row in session))
                    for row in session:
                        self.rows.remove(row)
        return given

    def _end(self, session: list[Row]) -> int:
        return max(time for _, time, _ in session if time is not None) + self.gap

    def _sessions(self, rows: list[Row]) -> list[list[Row]]:
        found: list[list[Row]] = []
        for row in sorted(rows, key=lambda row: (repr(row[0]), row[1])):
            last = found[-1][-1] if found else None
            if last is not None and last[0] == row[0] and row[1] - last[1] <= self.gap:  # type: ignore[operator]
                found[-1].append(row)
            else:
                found.append([row])
        return found
