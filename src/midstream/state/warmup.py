"""Warming a cache up: bringing the state of some ranges to this machine before it is needed, hottest bins first.

Segments are immutable, so this may go on beside the stream for as long as it takes, and what was fetched stays good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from midstream.errors import CheckpointError, StoreError
from midstream.state.cache import BlockCache
from midstream.state.hashspace import HASH_END, HashRange
from midstream.state.heat import Heat
from midstream.state.ledger import committed_epochs, read_manifest
from midstream.state.manifest import StepState
from midstream.state.precedence import give_way
from midstream.state.segment import Segment
from midstream.state.store import Store

WARMUPS = "warm-ups"
"""The folder of a checkpoint in which warm-ups tell how far they are: `warm-ups/<id>/<executor>.json`."""


_TELL_SECONDS = 0.5
"""Between two words on how far it is."""

_GIVE_WAY_SECONDS = 0.5
"""How long a block waits for tasks of the stream at most."""

_FOLLOW_SECONDS = 0.5
"""Between two looks for a new commit."""


@dataclass(frozen=True)
class Warmth:
    """How far a warm-up is. `fetched` counts what came from the store, `done` what is here now, of `total` bytes."""

    total: int = 0
    done: int = 0
    fetched: int = 0
    seconds: float = 0.0
    finished: bool = False
    error: str | None = None
    epoch: int | None = None
    """The epoch whose state is here, of one that follows the commits."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class WarmupJob:
    """Ranges of steps whose state is wanted, and how fast it may come."""

    id: str
    executor: str
    store: Store
    steps: Mapping[str, StepState]
    ranges: Mapping[str, tuple[HashRange, ...]]
    bytes_per_second: float | None = None
    seconds: float = 3600.0
    """How long it may take at most: whoever wants it may be gone by then."""
    by_heat: bool = True
    follow: bool = False
    """Whether to go on with every commit until told to stop."""

    @property
    def path(self) -> str:
        """Where it tells how far it is."""
        return f"{WARMUPS}/{self.id}/{self.executor}.json"

    @property
    def stop(self) -> str:
        """It ends when there is something in this folder."""
        return f"{WARMUPS}/{self.id}/stop"


def warm_up(
    job: WarmupJob,
    cache: BlockCache,
    tell: Callable[[Warmth], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Warmth:
    """Fetch every block of the job's ranges that is not here yet, hottest first, no faster than it may, and between the
    tasks of the stream. `tell` is told now and then how far it is, and says whether it is still wanted."""
    before, started = cache.fetched_bytes, clock()
    wanted = list(_blocks(job, cache))
    if job.by_heat:
        wanted.sort(key=lambda block: -block.heat)
    total, done, told = sum(block.length for block in wanted), 0, started

    def now(**more: Any) -> Warmth:
        return Warmth(total, done, cache.fetched_bytes - before, clock() - started, **more)

    for block in wanted:
        give_way(cache.directory, _GIVE_WAY_SECONDS)
        block.segment.fetch(block.number)
        done += block.length
        while True:
            ahead = 0.0
            if job.bytes_per_second is not None:
                ahead = (cache.fetched_bytes - before) / job.bytes_per_second - (clock() - started)
            if clock() - told > _TELL_SECONDS:
                told = clock()
                if not tell(now()):
                    return now(error="it was told to stop")
            if clock() - started > job.seconds:
                return now(error=f"not done after {job.seconds:.0f} s")
            if ahead <= 0:
                break
            sleep(min(ahead, _TELL_SECONDS))
    return now(finished=True)


def follow(
    job: WarmupJob, cache: BlockCache, tell: Callable[[Warmth], bool], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Keep the state of the job's ranges at hand, commit by commit, until `tell` says that it is no longer wanted."""
    warmth = Warmth()
    while tell(warmth):
        # The manifest has just been collected, and there is a newer one; or the store fails for a while.
        with suppress(CheckpointError, StoreError):
            newest = max(committed_epochs(job.store), default=-1)
            if newest >= 0 and newest != warmth.epoch:
                steps = read_manifest(job.store, newest).steps
                known = {step: ranges for step, ranges in job.ranges.items() if step in steps}
                warmth = replace(warm_up(replace(job, steps=steps, ranges=known), cache, tell), epoch=newest)
        sleep(_FOLLOW_SECONDS)


@dataclass(frozen=True)
class _Wanted:
    segment: Segment
    number: int
    length: int
    heat: float


def _blocks(job: WarmupJob, cache: BlockCache) -> Iterator[_Wanted]:
    """Blocks that hold rows of the ranges, each with its heat by byte: newer segments hold what was used lately."""
    for step, ranges in job.ranges.items():
        state = job.steps[step]
        heat = state.heat or Heat.none()
        for table in state.tables.values():
            for info in table.segments:
                segment = Segment(job.store, info, cache)
                numbers = {n for r in ranges for n in segment.blocks_between(r.start, r.end - 1)}
                for number in sorted(numbers):
                    where = segment.blocks[number]
                    span = HashRange(where.first, min(where.last + 1, HASH_END))
                    yield _Wanted(segment, number, where.length, heat.of(span) / where.length)
