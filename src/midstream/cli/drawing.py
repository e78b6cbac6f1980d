"""The graph of a pipeline drawn with boxes and lines: to the right if that fits, else downwards, else as a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from rich.console import Group
from rich.text import Text

from midstream.changes.verdict import in_bytes
from midstream.cli.figures import rate
from midstream.cli.layout import Layout, Size, arrange, forward_edges, layers_of
from midstream.cli.routing import Channel, Wire, route
from midstream.control.models import Graph, Step

NORTH, EAST, SOUTH, WEST = 1, 2, 4, 8
LINES = {
    NORTH: "│", SOUTH: "│", NORTH | SOUTH: "│",
    EAST: "─", WEST: "─", EAST | WEST: "─",
    SOUTH | EAST: "┌", SOUTH | WEST: "┐", NORTH | EAST: "└", NORTH | WEST: "┘",
    NORTH | SOUTH | EAST: "├", NORTH | SOUTH | WEST: "┤",
    EAST | WEST | SOUTH: "┬", EAST | WEST | NORTH: "┴",
    NORTH | EAST | SOUTH | WEST: "┼",
}  # fmt: skip
KINDS = {"source": "green", "sink": "magenta"}

_PORT_DOWN = 3
"""Where lines enter and leave a box when the flow goes down: cells from its left."""


def draw(graph: Graph, width: int) -> Group:
    """The graph in at most `width` columns."""
    steps = {step.id: step for step in graph.steps}
    if not steps:
        return Group(Text("no steps", style="dim"))
    for orientation in (_RIGHT, _DOWN, _DOWN_NARROW):
        lines = _drawn(steps, orientation)
        if max(line.cell_len for line in lines) <= width:
            return Group(*lines, *_returns(steps))
    return Group(*_listed(steps, width))


@dataclass(frozen=True)
class Box:
    """What stands in a box; the first line is the step's name."""

    lines: tuple[str, ...]
    kind: str

    @property
    def width(self) -> int:
        return max(len(line) for line in self.lines) + 4

    @property
    def height(self) -> int:
        return len(self.lines) + 2


@dataclass(frozen=True)
class Orientation:
    """How places along and across the flow become rows and columns."""

    boxed: Callable[[Step], Box]
    downwards: bool
    spacing: int
    """Cells from one track to the next: a column is narrower than a row is high."""
    arrow: str
    joining: tuple[str, str]
    """Arrows across the flow, to larger ports and to smaller ones."""

    def size(self, box: Box) -> Size:
        return Size(_PORT_DOWN, box.width - 1 - _PORT_DOWN) if self.downwards else Size(1, box.height - 2)

    def length(self, box: Box) -> int:
        return box.height if self.downwards else box.width

    def channel(self, tracks: int) -> int:
        return 2 + (tracks if self.downwards else max(1, self.spacing * tracks))

    def track(self, begin: int, number: int) -> int:
        """Where a track of the channel that begins at `begin` runs."""
        return begin + 1 + number * self.spacing

    def cell(self, along: int, across: int) -> tuple[int, int]:
        return (along, across) if self.downwards else (across, along)

    @property
    def forth(self) -> int:
        return SOUTH if self.downwards else EAST

    @property
    def back(self) -> int:
        return NORTH if self.downwards else WEST

    @property
    def up(self) -> int:
        """Towards smaller ports."""
        return WEST if self.downwards else NORTH

    @property
    def down(self) -> int:
        return EAST if self.downwards else SOUTH


@dataclass
class Canvas:
    """Cells with a character and a style each, and the lines that pass them, by the net they belong to."""

    orientation: Orientation
    characters: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    passing: dict[tuple[int, int], dict[tuple[int, int], int]] = field(default_factory=dict)

    def write(self, row: int, column: int, text: str, style: str = "") -> None:
        for offset, character in enumerate(text):
            self.characters[row, column + offset] = (character, style)

    def stroke(self, net: tuple[int, int], along: int, across: int, directions: int) -> None:
        cell = self.passing.setdefault(self.orientation.cell(along, across), {})
        cell[net] = cell.get(net, 0) | directions

    def lines(self) -> list[Text]:
        cells = {cell: (LINES[_joined(nets.values())], "dim") for cell, nets in self.passing.items()} | self.characters
        rows = 1 + max(row for row, _ in cells)
        found = []
        for row in range(rows):
            last = max((column for r, column in cells if r == row), default=-1)
            line = Text()
            for column in range(last + 1):
                line.append(*cells.get((row, column), (" ", "")))
            found.append(line)
        return found


def _joined(directions: Iterable[int]) -> int:
    """The directions a cell shows. Where a line only crosses another, the one that goes up and down is in front."""
    given = set(directions)
    return NORTH | SOUTH if given == {NORTH | SOUTH, EAST | WEST} else reduce(or_, given)


def _drawn(steps: Mapping[str, Step], orientation: Orientation) -> list[Text]:
    boxes = {id_: orientation.boxed(step) for id_, step in steps.items()}
    layout = arrange({id_: step.inputs for id_, step in steps.items()}, _sizes(boxes, orientation))
    canvas = Canvas(orientation)
    along = 0
    channels = [*map(route, layout.links), Channel((), 0)]
    for index, (layer, channel) in enumerate(zip(layout.layers, channels, strict=True)):
        length = max((orientation.length(boxes[p.step]) for p in layer if not p.is_line), default=1)
        behind = along + length
        for place in layer:
            if place.is_line:
                for at in range(along, behind):
                    canvas.stroke((index, -1 - place.port), at, place.port, orientation.forth | orientation.back)
            else:
                _box(canvas, boxes[place.step], along, place.port, length)
        if index + 1 < len(layout.layers):
            ends = _box_ports(layout, index + 1)
            gap = orientation.channel(channel.tracks)
            for wire in channel.wires:
                _wire(canvas, wire, index, behind, gap, ends)
            for wire in channel.wires:
                _joins(canvas, wire, index, behind)
            for port in _box_ports(layout, index) & {wire.start for wire in channel.wires if wire.begins is None}:
                row, column = orientation.cell(behind - 1, port)
                canvas.write(row, column, "┬" if orientation.downwards else "├", "dim")
            behind += gap
        along = behind
    return canvas.lines()


def _box_ports(layout: Layout, index: int) -> set[int]:
    return {place.port for place in layout.layers[index] if not place.is_line}


def _sizes(boxes: Mapping[str, Box], orientation: Orientation) -> dict[str, Size]:
    return {id_: orientation.size(box) for id_, box in boxes.items()}


def _box(canvas: Canvas, box: Box, along: int, port: int, length: int) -> None:
    """A box, as long as the longest of its layer."""
    orientation = canvas.orientation
    top, left = orientation.cell(along, port - orientation.size(box).before)
    width = box.width if orientation.downwards else length
    height = length if orientation.downwards else box.height
    canvas.write(top, left, f"┌{'─' * (width - 2)}┐", "dim")
    for index in range(height - 2):
        text = box.lines[index] if index < len(box.lines) else ""
        canvas.write(top + 1 + index, left, "│", "dim")
        canvas.write(top + 1 + index, left + 1, f" {text:<{width - 4}} ", _style(box, index))
        canvas.write(top + 1 + index, left + width - 1, "│", "dim")
    canvas.write(top + height - 1, left, f"└{'─' * (width - 2)}┘", "dim")


def _style(box: Box, index: int) -> str:
    return f"bold {KINDS.get(box.kind, 'cyan')}" if index == 0 else ""


def _wire(canvas: Canvas, wire: Wire, layer: int, begin: int, gap: int, arrows: set[int]) -> None:
    """A piece of a line through the channel that begins at `begin`."""
    orientation = canvas.orientation
    net = (layer, wire.net)
    through = orientation.forth | orientation.back
    end = begin + gap

    def run(first: int, last: int, port: int) -> None:
        for along in range(first, last):
            canvas.stroke(net, along, port, through)

    if wire.track is None:
        run(begin, end, wire.start)
    else:
        turn = orientation.track(begin, wire.track)
        run(begin if wire.begins is None else orientation.track(begin, wire.begins) + 1, turn, wire.start)
        canvas.stroke(net, turn, wire.start, orientation.back)
        low, high = min(wire.start, *wire.ends), max(wire.start, *wire.ends)
        for port in range(low, high + 1):
            up = orientation.up if port > low else 0
            down = orientation.down if port < high else 0
            canvas.stroke(net, turn, port, up | down)
        for port in wire.ends:
            canvas.stroke(net, turn, port, orientation.forth)
            run(turn + 1, end if wire.stops is None else orientation.track(begin, wire.stops), port)
    if wire.stops is None:
        for port in set(wire.ends) & arrows:
            row, column = orientation.cell(end - 1, port)
            canvas.write(row, column, orientation.arrow)


def _joins(canvas: Canvas, wire: Wire, layer: int, begin: int) -> None:
    """Arrows where a line comes in from the side: without them it might as well branch off there."""
    if wire.track is None:
        return
    orientation = canvas.orientation
    turn = orientation.track(begin, wire.track)
    for port in wire.ends:
        before = port - 1 if port > wire.start else port + 1
        others = set(canvas.passing.get(orientation.cell(turn, port), {})) - {(layer, wire.net)}
        alone = len(canvas.passing.get(orientation.cell(turn, before), {})) == 1
        if others and alone and port != wire.start and before != wire.start:
            row, column = orientation.cell(turn, before)
            canvas.write(row, column, orientation.joining[0 if port > wire.start else 1], "dim")


def _tall(step: Step) -> Box:
    """For a flow to the right, or where there is little room: narrow, a fact a line."""
    lines = [step.id, _kind(step)]
    if step.rows_per_second is not None:
        lines.append(f"{rate(step.rows_per_second)} rows/s")
    if step.state_rows or step.state_bytes:
        lines += [f"{step.state_rows:,} keys", in_bytes(step.state_bytes)]
    return Box(tuple(lines), step.kind)


def _wide(step: Step) -> Box:
    """For a flow downwards: low, with the facts side by side."""
    facts = [_kind(step)]
    if step.rows_per_second is not None:
        facts.append(f"{rate(step.rows_per_second)} rows/s")
    if step.state_rows or step.state_bytes:
        facts.append(f"{step.state_rows:,} keys, {in_bytes(step.state_bytes)}")
    return Box((step.id, " · ".join(facts)), step.kind)


_RIGHT = Orientation(_tall, downwards=False, spacing=2, arrow="▶", joining=("▼", "▲"))
_DOWN = Orientation(_wide, downwards=True, spacing=1, arrow="▼", joining=("▶", "◀"))
_DOWN_NARROW = replace(_DOWN, boxed=_tall)


def _kind(step: Step) -> str:
    return f"{step.kind} ×{step.partitions}" if step.partitions is not None else step.kind


def _listed(steps: Mapping[str, Step], width: int) -> Iterator[Text]:
    """A step a line, indented by how far down the flow it is, below what it reads; as much of it as there is room."""
    inputs = {id_: step.inputs for id_, step in steps.items()}
    edges = forward_edges(inputs)
    depth = layers_of(inputs, edges)
    for id_ in _reading_order(steps, edges):
        step = steps[id_]
        line = Text("  " * depth[id_])
        line.append(id_, style=f"bold {KINDS.get(step.kind, 'cyan')}")
        line.append(f" ← {', '.join(step.inputs)}" if step.inputs else "")
        line.append(f"  {_wide(step).lines[1]}", style="dim")
        line.truncate(width, overflow="ellipsis")
        yield line


def _reading_order(steps: Iterable[str], edges: Iterable[tuple[str, str]]) -> list[str]:
    """Each step as soon as all it reads is there, a branch at a time."""
    left, readers = dict.fromkeys(steps, 0), {step: list[str]() for step in steps}
    for source, reader in edges:
        left[reader] += 1
        readers[source].append(reader)
    order: list[str] = []
    ready = [step for step, count in reversed(left.items()) if not count]
    while ready:
        step = ready.pop()
        order.append(step)
        for reader in reversed(readers[step]):
            left[reader] -= 1
            if not left[reader]:
                ready.append(reader)
    return order


def _returns(steps: Mapping[str, Step]) -> Iterator[Text]:
    """Edges that go back, which boxes and lines leave out."""
    drawn = set(forward_edges({id_: step.inputs for id_, step in steps.items()}))
    for id_, step in steps.items():
        for source in step.inputs:
            if source in steps and (source, id_) not in drawn:
                yield Text(f"{id_} also reads {source}: a loop", style="dim")
