"""How far event time has come: by source, and by step as the least of the sources above it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from midstream.state.manifest import SourceTime


@dataclass(frozen=True)
class Mark:
    """What a source says of its watermark: the delay, and after how long without rows it is idle."""

    delay: int
    idle_after: int | None = None


def advanced(
    before: Mapping[str, SourceTime], marks: Mapping[str, Mark], latest: Mapping[str, int | None], now: float
) -> dict[str, SourceTime]:
    """The times of sources after an epoch in which each gave rows up to `latest`, or none with a time.

    A watermark never goes back. Sources that are gone are left out, new ones begin without one.
    """
    return {id_: _advanced(before.get(id_), mark, latest.get(id_), now) for id_, mark in marks.items()}


def _advanced(before: SourceTime | None, mark: Mark, latest: int | None, now: float) -> SourceTime:
    if latest is not None:
        reached = latest - mark.delay
        if before is not None and before.watermark is not None:
            reached = max(reached, before.watermark)
        return SourceTime(reached, now)
    known = before or SourceTime(rows_at=now)
    since = known.rows_at if known.rows_at is not None else now
    idle = mark.idle_after is not None and (now - since) * 1_000_000 >= mark.idle_after
    return replace(known, rows_at=since, idle=idle)


def reached(before: int | None, times: Iterable[SourceTime]) -> int | None:
    """The watermark of a step below sources: the least of those that are not idle, never less than it was.

    A source that has given no time yet holds it back; when all are idle, it stays where it is.
    """
    busy = [time.watermark for time in times if not time.idle]
    known = [watermark for watermark in busy if watermark is not None]
    if not known or len(known) < len(busy):
        return before
    return min(known) if before is None else max(before, min(known))
