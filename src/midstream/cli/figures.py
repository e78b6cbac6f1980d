"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

from midstream.changes.verdict import in_bytes

BARS = "▁▂▃▄▅▆▇█"


def count(value: float | None) -> str:
    """
    >>> count(1234.4), count(None)
    ('1,234', '–')
    """
    return "–" if value is None else f"{value:,.0f}"


def epoch(number: int) -> str:
    """
    >>> epoch(41), epoch(-1)
    ('41', 'none yet')
    """
    return str(number) if number >= 0 else "none yet"


def rate(value: float | None) -> str:
    """
    >>> rate(0.26), rate(123456), rate(None)
    ('0.3', '123,456', '–')
    """
    return "–" if value is None else f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    """
    >>> milliseconds(0.25), milliseconds(1250), milliseconds(None)
    ('0.2', '1,250', '–')
    """
    return "–" if value is None else f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def seconds(value: float) -> str:
    """
    >>> seconds(0.034), seconds(2.5), seconds(75)
    ('34 ms', '2.5 s', '1 min 15 s')
    """
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60)} s"


def held(rows: int, bytes_: int) -> str:
    """State: how much of it there is."""
    return f"{rows:,} rows, {in_bytes(bytes_)}" if rows or bytes_ else "–"


def when(moment: datetime) -> str:
    """A time on the clock of who reads it."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return aware.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def spark_line(values: Sequence[float]) -> str:
    """Values as bars. Those of more than three times the usual are cut off, for they would flatten all others.

    >>> spark_line([0, 50, 100]), spark_line([1, 1, 1, 90])
    ('▁▄█', '▃▃▃█')
    """
    if not values:
        return ""
    top = min(max(values), 3 * median(values)) or max(values) or 1
    return "".join(BARS[int(min(value / top, 1) * (len(BARS) - 1))] for value in values)
