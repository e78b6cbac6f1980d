"""Where the steps of a graph go: in layers along the flow, in an order with few crossings, in line where possible.

Nothing here knows whether the flow is drawn to the right or downwards: places have a layer along the flow and a port
across it, which is the line on which they are entered and left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median_high, median_low

GAP = 1
"""Cells between two neighbours of a layer, at least."""

Key = tuple[str, int]
"""A step and a layer: the step itself in its own, the line from it in those that the line passes."""


@dataclass(frozen=True)
class Size:
    """What a step takes across the flow, on either side of its port."""

    before: int
    after: int


LINE = Size(0, 0)


@dataclass(frozen=True)
class Place:
    """A step, or a line that passes a layer (`is_line`), and its port."""

    step: str
    is_line: bool
    port: int


@dataclass(frozen=True)
class Layout:
    """Layers of places, and between each two layers from which port to which lines go, by where they come from."""

    layers: tuple[tuple[Place, ...], ...]
    links: tuple[Mapping[int, tuple[int, ...]], ...]


def arrange(inputs: Mapping[str, Sequence[str]], sizes: Mapping[str, Size]) -> Layout:
    """Places for steps, given what each reads."""
    edges = forward_edges(inputs)
    depth = layers_of(inputs, edges)
    links = _links(edges, depth)
    layers = _ordered(inputs, depth, links)
    ports = _ports(layers, links, depth, sizes)
    places = tuple(tuple(Place(step, depth[step] != at, ports[step, at]) for step, at in layer) for layer in layers)
    between: list[dict[int, tuple[int, ...]]] = [{} for _ in layers[1:]]
    for start, ends in links.items():
        between[start[1]][ports[start]] = tuple(sorted(ports[end] for end in ends))
    return Layout(places, tuple(between))


def forward_edges(inputs: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Who is read by whom, without the edges that would close a circle."""
    edges: list[tuple[str, str]] = []
    done: set[str] = set()
    under_way: set[str] = set()

    def visit(step: str) -> None:
        under_way.add(step)
        for source in dict.fromkeys(inputs[step]):
            if source not in inputs or source in under_way:
                continue
            if source not in done:
                visit(source)
            edges.append((source, step))
        under_way.discard(step)
        done.add(step)

    for step in inputs:
        if step not in done:
            visit(step)
    return edges


def layers_of(inputs: Mapping[str, Sequence[str]], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The layer of each step: behind all it reads. A source stands right before the first that reads it.

    >>> layers_of({"a": [], "b": ["a"], "side": [], "c": ["b", "side"]}, [("a", "b"), ("b", "c"), ("side", "c")])
    {'a': 0, 'b': 1, 'side': 1, 'c': 2}
    """
    sources, readers = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for source, reader in edges:
        sources[reader].append(source)
        readers[source].append(reader)
    depth: dict[str, int] = {}

    def deepen(step: str) -> int:
        if step not in depth:
            depth[step] = 1 + max((deepen(source) for source in sources[step]), default=-1)
        return depth[step]

    for step in inputs:
        deepen(step)
    for step in inputs:
        if not sources[step] and readers[step]:
            depth[step] = min(depth[reader] for reader in readers[step]) - 1
    return {step: depth[step] for step in inputs}


def _links(edges: Sequence[tuple[str, str]], depth: Mapping[str, int]) -> dict[Key, list[Key]]:
    """From each place to those of the next layer. All lines of a step that pass a layer are one there."""
    links = defaultdict[Key, list[Key]](list)
    for source, reader in edges:
        for at in range(depth[source], depth[reader] - 1):
            if (source, at + 1) not in links[source, at]:
                links[source, at].append((source, at + 1))
        links[source, depth[reader] - 1].append((reader, depth[reader]))
    return dict(links)


def _ordered(
    inputs: Mapping[str, Sequence[str]], depth: Mapping[str, int], links: Mapping[Key, Sequence[Key]]
) -> list[list[Key]]:
    """The layers, each ordered by where the neighbours of its places are, as long as that takes crossings away."""
    layers: list[list[Key]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for step in inputs:
        layers[depth[step]].append((step, depth[step]))
    for ends in links.values():
        for end in ends:
            if depth[end[0]] != end[1] and end not in layers[end[1]]:
                layers[end[1]].append(end)
    back = defaultdict[Key, list[Key]](list)
    for start, ends in links.items():
        for end in ends:
            back[end].append(start)
    best = [list(layer) for layer in layers]
    for turn in range(8):
        down = turn % 2 == 0
        for index in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            neighbours = {key: n for n, key in enumerate(layers[index - 1 if down else index + 1])}
            places = {key: n for n, key in enumerate(layers[index])}
            leads = back if down else links
            layers[index].sort(key=lambda key: _middle(key, leads, neighbours, places))
        if _crossings(layers, links) < _crossings(best, links):
            best = [list(layer) for layer in layers]
    return best


def _middle(
    key: Key, leads: Mapping[Key, Sequence[Key]], neighbours: Mapping[Key, int], places: Mapping[Key, int]
) -> float:
    found = [neighbours[other] for other in leads.get(key, ()) if other in neighbours]
    return mean(found) if found else float(places[key])


def _crossings(layers: Sequence[Sequence[Key]], links: Mapping[Key, Sequence[Key]]) -> int:
    crossings = 0
    for upper, lower in pairwise(layers):
        place = {key: n for n, key in enumerate(lower)}
        lines = [(n, place[end]) for n, key in enumerate(upper) for end in links.get(key, ())]
        crossings += sum(1 for a in lines for b in lines if a[0] < b[0] and a[1] > b[1])
    return crossings


def _ports(
    layers: Sequence[Sequence[Key]],
    links: Mapping[Key, Sequence[Key]],
    depth: Mapping[str, int],
    sizes: Mapping[str, Size],
) -> dict[Key, int]:
    """Ports in line with what is read, as far as the neighbours in the layer leave room."""
    back = defaultdict[Key, list[Key]](list)
    for start, ends in links.items():
        for end in ends:
            back[end].append(start)
    ports: dict[Key, int] = {}
    for layer in layers:
        taken = [sizes[step] if depth[step] == at else LINE for step, at in layer]
        offsets = list(_offsets(taken))
        wishes: list[int | None] = [
            median_low([ports[start] for start in back[key]]) - offset if back[key] else None
            for key, offset in zip(layer, offsets, strict=True)
        ]
        for key, offset, place in zip(layer, offsets, ascending(_filled(wishes)), strict=True):
            ports[key] = place + offset
    first = min((ports[s, at] - (sizes[s].before if depth[s] == at else 0) for s, at in ports), default=0)
    return {key: port - first for key, port in ports.items()}


def _offsets(taken: Sequence[Size]) -> Iterator[int]:
    """How far behind the first port of a layer each one is at least."""
    offset = 0
    for index, size in enumerate(taken):
        if index:
            offset += taken[index - 1].after + size.before + 1 + GAP
        yield offset


def _filled(wishes: Sequence[int | None]) -> list[int]:
    """A place without a wish goes with the one before it, or with the first that has one."""
    last = next((wish for wish in wishes if wish is not None), 0)
    filled = []
    for wish in wishes:
        last = wish if wish is not None else last
        filled.append(last)
    return filled


def ascending(wishes: Sequence[int]) -> list[int]:
    """Numbers that never fall and are near those wished for: those that would fall share their median.

    >>> ascending([3, 1, 5])
    [3, 3, 5]
    """
    blocks: list[list[int]] = []
    for wish in wishes:
        blocks.append([wish])
        while len(blocks) > 1 and median_high(blocks[-2]) > median_high(blocks[-1]):
            later = blocks.pop()
            blocks[-1] += later
    return [median_high(block) for block in blocks for _ in block]
