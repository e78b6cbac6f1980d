"""What happens in a chaos run, and when: all of it follows from a seed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

CHANGES = ("migrate", "drain", "undrain", "rescale", "rebalance", "split", "undo")
KILLS = ("kill executor", "kill driver")
STORE_FAULTS = ("errors", "lost answers", "stalls", "slow answers")
CUT = "cut"
KINDS = (*CHANGES, *KILLS, *STORE_FAULTS, CUT)

_WEIGHTS = {"migrate": 4, "undrain": 2, "rescale": 2, "kill driver": 1, "undo": 1}
_USUAL = 1.5


@dataclass(frozen=True)
class Act:
    """Something that happens some seconds and epochs after the one before. `pick` decides what it happens to; faults
    last for some `seconds`."""

    pause: float
    epochs: int
    kind: str
    pick: int
    seconds: float


def each_once(seed: int) -> list[Act]:
    """Every kind once, in any order in which there is something to take back; each while epochs go on."""
    chance = random.Random(seed)
    kinds = list(KINDS)
    chance.shuffle(kinds)
    while kinds.index("undrain") < kinds.index("drain") or kinds.index("undo") < kinds.index("migrate"):
        chance.shuffle(kinds)
    return [replace(_act(chance, kind, 1.0), epochs=1) for kind in kinds]


def for_seconds(seed: int, seconds: float) -> Iterator[Act]:
    """One after the other, until so many seconds have gone by."""
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        (kind,) = chance.choices(KINDS, [_WEIGHTS.get(kind, _USUAL) for kind in KINDS])
        yield _act(chance, kind, 7.0)


def _act(chance: random.Random, kind: str, longest: float) -> Act:
    pause, epochs = chance.uniform(0.0, longest), chance.choice((0, 0, 1, 2))
    return Act(pause, epochs, kind, chance.randrange(2**32), chance.uniform(2.0, 6.0))
