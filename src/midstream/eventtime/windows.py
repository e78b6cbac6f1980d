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


@dataclass(frozen=True)
class EveryEpoch:
    """A key's result is given in every epoch that changes it; see `midstream.every_epoch`."""


@dataclass(frozen=True)
class AfterRows:
    """A result is given for every so many rows of a key; see `midstream.after_rows`."""

    n: int


@dataclass(frozen=True)
class AtWatermark:
    """A key's result is given when the watermark has passed a multiple of a length; see `midstream.at_watermark`."""

    every: int


Trigger: TypeAlias = EveryEpoch | AfterRows | AtWatermark


@dataclass(frozen=True)
class Global:
    """One window for all time, with a trigger that says when it gives results; see `midstream.global_window`."""

    trigger: Trigger


Window: TypeAlias = Tumbling | Sliding | Session | OfInput | Global


class Clock(StrEnum):
    """The time windows and timers go by: that of events, up to the watermark, or that of the clock on the wall."""

    EVENT = "event"
    PROCESSING = "processing"


class Emit(StrEnum):
    """When a window gives rows."""

    CLOSED = "closed"
    """Once, when the watermark has passed its end."""
    CHANGED = "changed"
    """In every epoch that changes it: the rows of a key and window replace each other."""
    RETRACTIONS = "retractions"
    """In every epoch that changes it: what it has given before is taken back by a row of its own."""


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


def global_window(trigger: Trigger) -> Global:
    """One window for all time. `every_epoch()`, `at_watermark(…)` and `after_rows(…)` say when it gives results."""
    return Global(trigger)


def every_epoch() -> EveryEpoch:
    """In every epoch, the results of the keys it has changed, of all their rows so far."""
    return EveryEpoch()


def at_watermark(every: Duration) -> AtWatermark:
    """Whenever the watermark has passed a multiple of a length of time, the results of the keys that have changed
    since, of all their rows so far."""
    return AtWatermark(microseconds("the time between results", every))


def after_rows(n: int) -> AfterRows:
    """For every `n` rows of a key, in the order they come, the result of those: then it begins anew."""
    if n < 1:
        raise GraphError.bad_count(n)
    return AfterRows(n)


@dataclass(frozen=True)
class Windowing:
    """How a keyed step uses windows. `lateness` is for how long behind its end a window still takes rows."""

    window: Window
    time: str | None = None
    lateness: int = 0
    emit: Emit = Emit.CLOSED
    clock: Clock = Clock.EVENT
