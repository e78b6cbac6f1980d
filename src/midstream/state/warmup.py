"""Warming a cache up: bringing the state of some ranges to this machine before it is needed, hottest bins first.

Segments are immutable, so this may go on beside the stream for as long as it takes, and what was fetched stays good.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from midstream.errors import CheckpointError, StoreError
from midstream.state.cache import BlockCache
from midstream.state.hashspace import HASH_END, HashRange
from midstream.state.heat import Heat
from midstream.state.ledger import committed_epochs, read_manifest
from midstream.state.manifest import StepState
from midstream.state.precedence import Courtesy
from midstream.state.segment import Segment
from midstream.state.store import Store

WARMUPS = "warm-ups"
"""The folder of a checkpoint in which warm-ups tell how far they are: `warm-ups/<id>/<executor>.json`."""


_TELL_SECONDS = 0.5
"""Between two words on how far it is."""

PIECE_BYTES = 8 * 2**20
"""About how much is fetched with one request. A server that keeps objects in pieces of its own reads each of them as a
whole, so that small requests cost it twice and more."""

AT_ONCE = 2
"""How many requests are under way at most: while one is written down, the next comes."""

COPYING_NICENESS = 10
"""By so much a process is nicer once it copies than before: far below the stream's own processes, of which there are
fewer than of these when state goes to many executors; yet not starved when they fill every core."""

_FOLLOW_SECONDS = 0.5
"""Between two looks for a new commit."""

LITTLE_BYTES = 4 * 2**20
LITTLE_SECONDS = 1.5
"""What an epoch does not notice: it fetches so much itself, or what comes in so short a time beside it."""


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
    piece_bytes: int = PIECE_BYTES

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
    before, started, courtesy = cache.fetched_bytes, clock(), Courtesy(job.store, clock, sleep)
    wanted = list(_pieces(job, cache))
    if job.by_heat:
        wanted.sort(key=lambda piece: -piece.heat)
    total, done, told = sum(piece.length for piece in wanted), 0, started
    waiting, on_the_way = deque(wanted), dict[Future[object], int]()

    def now(**more: Any) -> Warmth:
        return Warmth(total, done, cache.fetched_bytes - before, clock() - started, **more)

    def ahead() -> float:
        """For how long nothing more may be asked for."""
        if job.bytes_per_second is None:
            return 0.0
        asked = cache.fetched_bytes - before + sum(on_the_way.values())
        return asked / job.bytes_per_second - (clock() - started)

    with ThreadPoolExecutor(AT_ONCE, "midstream-warm-up") as pool:
        while waiting or on_the_way:
            if clock() - told > _TELL_SECONDS:
                told = clock()
                if not tell(now()):
                    return now(error="it was told to stop")
            if clock() - started > job.seconds:
                return now(error=f"not done after {job.seconds:.0f} s")
            pause = ahead()
            if waiting and pause <= 0 and len(on_the_way) < AT_ONCE:
                courtesy()
                piece = waiting.popleft()
                on_the_way[pool.submit(piece.segment.bring, piece.numbers)] = piece.length
            elif on_the_way:
                for fetched in wait(on_the_way, _TELL_SECONDS, FIRST_COMPLETED).done:
                    fetched.result()
                    done += on_the_way.pop(fetched)
            else:
                sleep(min(pause, _TELL_SECONDS))
    return now(finished=True)


def follow(
    job: WarmupJob, cache: BlockCache, tell: Callable[[Warmth], bool], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Keep the state of the job's ranges at hand, commit by commit, until `tell` says that it is no longer wanted.

    It counts as finished while the last commit it has looked at had so little to fetch that an epoch does not notice.
    """
    warmth = Warmth()

    def tell_all(of_pass: Warmth) -> bool:
        fetched = warmth.fetched + of_pass.fetched
        return tell(replace(of_pass, fetched=fetched, finished=warmth.finished, epoch=warmth.epoch))

    while tell(warmth):
        # The manifest has just been collected, and there is a newer one; or the store fails for a while.
        with suppress(CheckpointError, StoreError):
            newest = max(committed_epochs(job.store), default=-1)
            if newest >= 0 and newest != warmth.epoch:
                steps = read_manifest(job.store, newest).steps
                known = {step: ranges for step, ranges in job.ranges.items() if step in steps}
                found = warm_up(replace(job, steps=steps, ranges=known), cache, tell_all)
                little = found.fetched <= LITTLE_BYTES or found.seconds <= LITTLE_SECONDS
                fetched = warmth.fetched + found.fetched
                warmth = replace(found, fetched=fetched, finished=found.finished and little, epoch=newest)
                if not little:
                    continue  # more has been committed meanwhile
        sleep(_FOLLOW_SECONDS)


@dataclass(frozen=True)
class _Piece:
    """Blocks side by side in a segment, with their heat by byte."""

    segment: Segment
    numbers: tuple[int, ...]
    length: int
    heat: float


def _pieces(job: WarmupJob, cache: BlockCache) -> Iterator[_Piece]:
    """Blocks that hold rows of the ranges. Newer segments hold what was used lately."""
    for step, ranges in job.ranges.items():
        state = job.steps[step]
        heat = state.heat or Heat.none()
        for table in state.tables.values():
            for info in table.segments:
                segment = Segment(job.store, info, cache)
                asked = [(r.start, r.end - 1) for r in ranges if info.may_hold(r.start, r.end - 1)]
                wanted = {number for span in asked for number in segment.blocks_between(*span)}
                for numbers in _side_by_side(segment, sorted(wanted), job.piece_bytes):
                    blocks = [segment.blocks[number] for number in numbers]
                    length = sum(block.length for block in blocks)
                    spans = (HashRange(block.first, min(block.last + 1, HASH_END)) for block in blocks)
                    yield _Piece(segment, numbers, length, sum(heat.of(span) for span in spans) / length)


def _side_by_side(segment: Segment, numbers: list[int], most: int) -> Iterator[tuple[int, ...]]:
    held: list[int] = []
    size = 0
    for number in numbers:
        length = segment.blocks[number].length
        if held and (number != held[-1] + 1 or size + length > most):
            yield tuple(held)
            held, size = [], 0
        held.append(number)
        size += length
    if held:
        yield tuple(held)
