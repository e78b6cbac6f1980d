"""Lines between two layers: each that must change its place across the flow gets a track of its own to do so.

Like a channel between two rows of a circuit: a line runs along the flow to its track, across the flow on it, and
along the flow again. Lines that come from the same place share a track; lines to the same place join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Wire:
    """A piece of a line: from the port `start` to the ports `ends`, across the flow on a track.

    `begins` and `stops` are tracks it runs between; None is the layer before and the layer behind.
    """

    net: int
    start: int
    ends: tuple[int, ...]
    track: int | None
    begins: int | None = None
    stops: int | None = None


@dataclass(frozen=True)
class Channel:
    wires: tuple[Wire, ...]
    tracks: int


@dataclass
class _Net:
    number: int
    start: int
    ends: tuple[int, ...]
    after: _Net | None = None
    """The first half of a line that changes its place twice, when this is the second."""

    @property
    def span(self) -> tuple[int, int]:
        return min(self.start, *self.ends), max(self.start, *self.ends)

    @property
    def is_straight(self) -> bool:
        return self.ends == (self.start,)


def route(links: Mapping[int, Sequence[int]]) -> Channel:
    """Wires for lines from ports to ports."""
    nets = [_Net(number, start, tuple(ends)) for number, (start, ends) in enumerate(sorted(links.items()))]
    turning = [net for net in nets if not net.is_straight]
    tracks = _tracks(turning)
    halves = {id(net.after): net for net in turning if net.after is not None}
    wires = [Wire(net.number, net.start, net.ends, None) for net in nets if net.is_straight]
    for net in turning:
        begins = tracks[id(net.after)] if net.after is not None else None
        stops = tracks[id(halves[id(net)])] if id(net) in halves else None
        wires.append(Wire(net.number, net.start, net.ends, tracks[id(net)], begins, stops))
    return Channel(tuple(wires), 1 + max(tracks.values(), default=-1))


def _tracks(nets: list[_Net]) -> dict[int, int]:
    """A track for each net, by its identity. `nets` grows when one has to be split."""
    tracks: dict[int, int] = {}
    spans: list[list[tuple[int, int]]] = []
    while len(tracks) < len(nets):
        waiting = [net for net in nets if id(net) not in tracks]
        ready = [net for net in waiting if not any(_must_precede(other, net) for other in waiting)]
        if not ready:
            _split(waiting[0], nets)
            continue
        net = min(ready, key=_turn)
        first = 1 + max((tracks[id(o)] for o in nets if id(o) in tracks and _must_precede(o, net)), default=-1)
        track = next(t for t in range(first, len(spans) + 2) if t >= len(spans) or _is_free(net.span, spans[t]))
        spans += [[] for _ in range(track + 1 - len(spans))]
        spans[track].append(net.span)
        tracks[id(net)] = track
    return tracks


def _must_precede(first: _Net, second: _Net) -> bool:
    """Whether a line must turn off before another comes in where it was: else the other would seem to lead to all the
    ends of the first, and the first to an end of the other. That is fine when both are so."""
    if first is second or first.after is second:
        return False
    if second.after is first:
        return True
    agree = first.start in first.ends and set(first.ends) <= set(second.ends)
    return first.start in second.ends and not agree


def _split(net: _Net, nets: list[_Net]) -> None:
    """Have a line change its place twice, by way of a port that nobody uses: so lines can change places."""
    taken = {port for other in nets for port in (other.start, *other.ends)}
    aside = next(net.start + distance for distance in range(1, 1000) if net.start + distance not in taken)
    nets.append(_Net(net.number, aside, net.ends, after=net))
    net.ends = (aside,)


def _turn(net: _Net) -> tuple[int, int]:
    """Which of several goes first, for few crossings: the lowest of those that go down, the highest that go up."""
    goes_down = max(net.ends) > net.start
    return (0, -net.start) if goes_down else (1, net.start)


def _is_free(span: tuple[int, int], taken: Sequence[tuple[int, int]]) -> bool:
    return all(span[1] < low or span[0] > high for low, high in taken)
