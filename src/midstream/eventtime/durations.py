"""Lengths of time as users write them, in microseconds as Spark counts them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from midstream.errors import GraphError

Duration: TypeAlias = str | timedelta
"""`"10 seconds"`, `"1 hour 30 minutes"`, or a `timedelta`."""

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"(\d+)\s*([a-z]+?)s?\b")


def microseconds(what: str, given: Duration, least: int = 1) -> int:
    """A length of time of at least so many microseconds; `what` names it in the error.

    >>> microseconds("the delay", "1 minute 30 seconds")
    90000000
    """
    found = _read(given)
    if found is None or found < least:
        raise GraphError.bad_duration(what, given, least)
    return found


def _read(given: object) -> int | None:
    if isinstance(given, timedelta):
        return given // timedelta(microseconds=1)
    if not isinstance(given, str):
        return None
    text = given.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def spelled(length: int) -> str:
    """Microseconds as Spark reads them.

    >>> spelled(1500)
    '1500 microseconds'
    """
    return f"{length} microseconds"
