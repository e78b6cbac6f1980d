"""Graphs drawn in the terminal."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from rich.console import Console

from midstream.cli.drawing import draw
from midstream.cli.layout import Size, arrange
from midstream.cli.routing import route
from midstream.control.models import Graph
from tests.cli import answers
from tests.cli.answers import step


def drawn(*steps: dict[str, Any], width: int = 120) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    picture = draw(Graph.model_validate(answers.graph(*steps)), width)
    console.print(picture, no_wrap=True, overflow="ignore", crop=False)
    return "\n".join(line.rstrip() for line in console.export_text().rstrip().split("\n"))


def picture(text: str) -> str:
    lines = text.strip("\n").split("\n")
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:].rstrip() for line in lines).rstrip()


CHAIN = (
    step("orders", [], "source"),
    step("clean", ["orders"], "sql", rows_per_second=1234.5),
    step("totals", ["clean"], "aggregate", partitions=8, state_rows=50_000, state_bytes=3_100_000),
    step("out", ["totals"], "sink"),
)
DIAMOND = (step("a", []), step("b", ["a"]), step("c", ["a"]), step("d", ["b", "c"]))


def test_a_chain() -> None:
    assert drawn(*CHAIN) == picture(
        """
        ┌────────┐   ┌──────────────┐   ┌──────────────┐   ┌──────┐
        │ orders ├──▶│ clean        ├──▶│ totals       ├──▶│ out  │
        │ source │   │ sql          │   │ aggregate ×8 │   │ sink │
        └────────┘   │ 1,234 rows/s │   │ 50,000 keys  │   └──────┘
                     └──────────────┘   │ 3.1 MB       │
                                        └──────────────┘
        """
    )


def test_a_branch() -> None:
    assert drawn(step("a", []), step("b", ["a"]), step("c", ["a"])) == picture(
        """
        ┌───────────┐    ┌───────────┐
        │ a         ├─┬─▶│ b         │
        │ transform │ │  │ transform │
        └───────────┘ │  └───────────┘
                      │
                      │  ┌───────────┐
                      └─▶│ c         │
                         │ transform │
                         └───────────┘
        """
    )


def test_a_diamond() -> None:
    assert drawn(*DIAMOND) == picture(
        """
        ┌───────────┐    ┌───────────┐    ┌───────────┐
        │ a         ├─┬─▶│ b         ├─┬─▶│ d         │
        │ transform │ │  │ transform │ ▲  │ transform │
        └───────────┘ │  └───────────┘ │  └───────────┘
                      │                │
                      │  ┌───────────┐ │
                      └─▶│ c         ├─┘
                         │ transform │
                         └───────────┘
        """
    )


def test_a_line_passes_the_steps_it_does_not_concern() -> None:
    assert drawn(step("a", []), step("b", ["a"]), step("c", ["a", "b"])) == picture(
        """
        ┌───────────┐    ┌───────────┐    ┌───────────┐
        │ a         ├─┬─▶│ b         ├─┬─▶│ c         │
        │ transform │ │  │ transform │ ▲  │ transform │
        └───────────┘ │  └───────────┘ │  └───────────┘
                      │                │
                      └────────────────┘
        """
    )


def test_where_it_is_too_narrow_the_flow_goes_down() -> None:
    assert drawn(*DIAMOND, width=40) == picture(
        """
        ┌───────────┐
        │ a         │
        │ transform │
        └──┬────────┘
           │
           ├─────────────┐
           ▼             ▼
        ┌───────────┐ ┌───────────┐
        │ b         │ │ c         │
        │ transform │ │ transform │
        └──┬────────┘ └──┬────────┘
           │             │
           ├◀────────────┘
           ▼
        ┌───────────┐
        │ d         │
        │ transform │
        └───────────┘
        """
    )


def test_where_that_is_too_wide_as_well_there_is_a_list() -> None:
    assert drawn(*DIAMOND, width=20) == picture(
        """
        a  transform
          b ← a  transform
          c ← a  transform
            d ← b, c  trans…
        """
    )


def test_wide_names_make_wide_boxes_or_a_list() -> None:
    name = "a" * 64
    steps = (step(name, []), step("b", [name]))

    assert f"│ {name} ├──▶│ b" in drawn(*steps, width=120)
    assert f"│ {name} │" in drawn(*steps, width=80)
    assert drawn(*steps, width=40) == f"{'a' * 39}…\n  b ← {'a' * 33}…"


def test_a_loop_is_told() -> None:
    assert "b also reads a: a loop" in drawn(step("a", ["b"]), step("b", ["a"]))


def test_no_steps() -> None:
    assert drawn() == "no steps"


OPEN = {
    "│": "ud", "─": "lr", "┌": "dr", "┐": "dl", "└": "ur", "┘": "ul",
    "├": "udr", "┤": "udl", "┬": "lrd", "┴": "lru", "┼": "udlr", "▲": "ud", "▼": "ud",
}  # fmt: skip
STEPS = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}
BACK = {"u": "d", "d": "u", "l": "r", "r": "l"}


def followed(text: str, names: list[str]) -> set[tuple[str, str]]:
    """Who leads to whom, read off a picture by going along its lines; a line is never left against its direction."""
    grid = {(r, c): char for r, line in enumerate(text.split("\n")) for c, char in enumerate(line)}
    boxes = {}
    for (row, column), char in grid.items():
        for name in names:
            if char == "│" and all(grid.get((row, column + 2 + i)) == x for i, x in enumerate(f"{name} ")):
                boxes[row, column] = name
    found = set()
    for (row, column), name in boxes.items():
        begin = next(c for c in itertools.count(column + 1) if grid.get((row, c)) in ("│", "├"))
        if grid[row, begin] == "├":
            found |= {(name, end) for end in _ends(grid, boxes, (row, begin + 1))}
    return found


def _ends(grid: dict[tuple[int, int], str], boxes: dict[tuple[int, int], str], first: tuple[int, int]) -> set[str]:
    ends, seen, todo = set(), set(), [(first, "r")]
    while todo:
        cell, heading = todo.pop()
        if (cell, heading) in seen:
            continue
        seen.add((cell, heading))
        char = grid.get(cell, " ")
        if char == "▶":
            ends.add(boxes[cell[0], cell[1] + 1])
            continue
        if (char, heading) in (("▲", "d"), ("▼", "u")):  # a line that comes from there
            continue
        if char == "│" and heading in "lr":  # passes behind a line that goes up and down
            ways = heading
        else:
            assert BACK[heading] in OPEN[char], (cell, char, heading)
            ways = OPEN[char].replace(BACK[heading], "").replace("l", "")
        for way in ways:
            todo.append(((cell[0] + STEPS[way][0], cell[1] + STEPS[way][1]), way))
    return ends


def random_graph(seed: int, inputs: list[int]) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    names = [f"s{number}" for number in range(chance.randint(2, 9))]
    steps = []
    for index, name in enumerate(names):
        known = names[:index]
        steps.append(step(name, chance.sample(known, min(len(known), chance.choice(inputs)))))
    return steps


@pytest.mark.parametrize(
    ("inputs", "clear"), [([0, 1, 1, 1, 1, 2], 0.97), ([0, 1, 2, 3], 0.85)], ids=["like pipelines", "dense"]
)
def test_every_line_of_a_picture_leads_where_it_should(inputs: list[int], clear: float) -> None:
    """In crowded pictures a line may seem to lead somewhere else as well, where it passes one that it joins."""
    same = 0
    for seed in range(150):
        steps = random_graph(seed, inputs)
        wanted = {(source, each["id"]) for each in steps for source in each["inputs"]}
        text = drawn(*steps, width=10_000)
        found = followed(text, [each["id"] for each in steps])
        assert wanted <= found, text
        same += found == wanted
    assert same >= clear * 150


def test_lines_that_change_places_are_led_around_each_other() -> None:
    channel = route({1: [5], 5: [1]})

    assert channel.tracks == 3
    assert sorted((wire.start, wire.ends) for wire in channel.wires) == [(1, (2,)), (2, (5,)), (5, (1,))]


def test_steps_of_a_layer_keep_apart() -> None:
    sizes = {name: Size(1, 3) for name in "abcde"}
    layout = arrange({"a": [], "b": ["a"], "c": ["a"], "d": ["a"], "e": ["b", "d"]}, sizes)

    for layer in layout.layers:
        for upper, lower in itertools.pairwise(layer):
            assert lower.port - upper.port >= 6
