"""Windows of event time: which of them a row belongs to, and when they give their results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from midstream.errors import GraphError
from midstream.eventtime.durations import Duration, microseconds

START, END = "window_start", "window_end"
"""The columns a window adds: its first instant, and the first instant behind it."""


@dataclass(frozen=True)
class Tumbling:
    """Windows of one length, side by side; see `midstream.tumbling`."""

    size: int
    offset: int = 0


@dataclass(frozen=True)
class Sliding:
    """Windows of one length, of which one begins every `slide`; see `midstream.sliding`."""

    size: int
    slide: int
    offset: int = 0


@dataclass(frozen=True)
class Session:
    """Windows that last as long as rows of a key are no further apart than `gap`; see `midstream.session`."""

    gap: int


@dataclass(frozen=True)
class OfInput:
    """The windows rows have already; see `midstream.window_of_input`."""


Window: TypeAlias = Tumbling | Sliding | Session | OfInput


class Emit(StrEnum):
    """When a window gives rows."""

    CLOSED = "closed"
    """Once, when the watermark has passed its end."""
    CHANGED = "changed"
    """In every epoch that changes it: the rows of a key and window replace each other."""


def tumbling(size: Duration, offset: Duration = "0 seconds") -> Tumbling:
    """Windows of one length side by side, the first at 1970-01-01 00:00 UTC or so much later."""
    length = microseconds("the size of a window", size)
    return Tumbling(length, microseconds("the offset of a window", offset, least=0) % length)


def sliding(size: Duration, slide: Duration, offset: Duration = "0 seconds") -> Sliding:
    """Windows of one length, of which one begins every `slide`, so that a row is in several."""
    length, step = microseconds("the size of a window", size), microseconds("the slide of a window", slide)
    if step > length:
        raise GraphError.bad_slide(size, slide)
    return Sliding(length, step, microseconds("the offset of a window", offset, least=0) % step)


def session(gap: Duration) -> Session:
    """A window for each run of rows of a key of which none is further than `gap` from the one before; it ends `gap`
    after the last."""
    return Session(microseconds("the gap of a session", gap))


def window_of_input() -> OfInput:
    """The windows of the rows themselves, for a step behind one with windows: what a window gave is taken together by
    the columns `window_start` and `window_end`."""
    return OfInput()


@dataclass(frozen=True)
class Windowing:
    """How a keyed step uses windows. `lateness` is for how long behind its end a window still takes rows."""

    window: Window
    time: str | None = None
    lateness: int = 0
    emit: Emit = Emit.CLOSED
