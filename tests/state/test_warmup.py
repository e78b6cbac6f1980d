"""Warming a cache up from a real S3 server: hottest blocks first, no faster than allowed, and only what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from midstream.state.cache import BlockCache
from midstream.state.hashspace import BINS, even_ranges
from midstream.state.heat import Heat
from midstream.state.ledger import Ledger
from midstream.state.manifest import StepState, TableState
from midstream.state.s3 import S3Store
from midstream.state.segment import Segment, encode_segment
from midstream.state.store import Store, open_store
from midstream.state.tables import TableKind, TableSpec
from midstream.state.warmup import AT_ONCE, Warmth, WarmupJob, follow, warm_up
from tests.servers import S3Server, free_ports

ROWS, BLOCK = 40_000, 1_000
HALVES = even_ranges(2)


@pytest.fixture
def store(s3_server: S3Server) -> Store:
    return open_store(s3_server.url(f"warm-up/{uuid4().hex}"), s3_server.options)


@pytest.fixture
def cache(tmp_path: Path) -> BlockCache:
    return BlockCache(tmp_path / "cache", 10**9)


@pytest.fixture
def state(store: Store) -> StepState:
    """One segment of forty blocks, of which those in the middle of the upper half are the hottest."""
    spec = TableSpec("t", pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]), TableKind.VALUE, None)
    hashes = np.linspace(-(2**63), 2**63 - 2**12, ROWS).astype(np.int64)
    encoded = encode_segment(spec, hashes, pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS)}), None, BLOCK)
    store.put("segments/s/t/base.seg", encoded.data)
    heat = np.zeros(BINS)
    heat[BINS * 3 // 4] = 1000
    segments = (encoded.info("segments/s/t/base.seg", 0, 0, 2),)
    return StepState(HALVES, {"t": TableState(spec, segments, rows=ROWS)}, Heat(heat))


def job_of(store: Store, state: StepState, **options: float) -> WarmupJob:
    """A job that fetches block by block."""
    return WarmupJob("id", "1", store, {"s": state}, {"s": (HALVES[1],)}, piece_bytes=1, **options)


def test_only_the_ranges_that_are_wanted_come(store: Store, state: StepState, cache: BlockCache) -> None:
    warmth = warm_up(job_of(store, state), cache, lambda _: True)
    size = state.tables["t"].segments[0].bytes
    assert warmth.finished
    assert warmth.done == warmth.total
    assert 0.48 * size < warmth.total < 0.53 * size
    again = warm_up(job_of(store, state), cache, lambda _: True)
    assert (again.done, again.fetched) == (warmth.done, 0), "it is all there"


def test_the_hottest_come_first(store: Store, state: StepState, cache: BlockCache) -> None:
    """Told to stop as soon as it has brought something, it has brought what matters most."""
    ticks = iter(range(1000))
    warmth = warm_up(job_of(store, state), cache, lambda w: w.done == 0, clock=lambda: float(next(ticks)))
    assert warmth.error == "it was told to stop"
    assert warmth.done <= AT_ONCE / 20 * warmth.total
    before = cache.fetched_bytes
    segment = Segment(store, state.tables["t"].segments[0], cache)
    segment.fetch(segment.blocks_between(2**62, 2**62 + 2**52)[0])
    assert cache.fetched_bytes == before


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What stores are asked for from now on: a path and how many bytes."""
    asked: list[tuple[str, int]] = []
    read = S3Store.read

    def counted(self: S3Store, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        asked.append((path, length or 0))
        return read(self, path, start, length)

    monkeypatch.setattr(S3Store, "read", counted)
    return asked


def test_blocks_side_by_side_come_with_one_request(
    store: Store, state: StepState, cache: BlockCache, requests: list[tuple[str, int]]
) -> None:
    segment = Segment(store, state.tables["t"].segments[0], cache)
    segment.fetch(25)
    requests.clear()
    warmth = warm_up(replace(job_of(store, state), piece_bytes=10**7), cache, lambda _: True)
    sizes = [block.length for block in segment.blocks]
    # One is here already: what is before it, and what is behind it.
    assert [length for _, length in requests] == [sum(sizes[20:25]), sum(sizes[26:40])]
    assert warmth.finished
    before = cache.fetched_bytes
    assert all(segment.fetch(number).size == sizes[number] for number in range(20, 40))
    assert cache.fetched_bytes == before


def test_small_files_come_with_one_request_each_and_those_of_other_ranges_not_at_all(
    store: Store, state: StepState, cache: BlockCache, requests: list[tuple[str, int]]
) -> None:
    table, rows = state.tables["t"], 100
    written = []
    for half in range(2):
        hashes = np.linspace(*((-(2**63), -(2**12)), (0, 2**63 - 2**12))[half], rows).astype(np.int64)
        encoded = encode_segment(table.spec, hashes, pa.table({"k": np.arange(rows), "v": np.arange(rows)}), None, 10)
        store.put(f"segments/s/t/{half}.seg", encoded.data)
        written.append(encoded.info(f"segments/s/t/{half}.seg", 1, 1, 0))
    small = replace(state, tables={"t": replace(table, segments=tuple(written))})
    assert warm_up(job_of(store, small), cache, lambda _: True).finished
    assert requests == [("segments/s/t/1.seg", written[1].bytes)]


def test_one_that_follows_is_finished_when_little_is_new(
    store: Store, state: StepState, cache: BlockCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(store)
    last = ledger.last()
    ledger.commit(replace(last, epoch=0, steps={"s": state}))
    told: list[Warmth] = []
    monkeypatch.setattr("midstream.state.warmup.LITTLE_BYTES", 0)
    monkeypatch.setattr("midstream.state.warmup.LITTLE_SECONDS", 0.0)

    def tell(warmth: Warmth) -> bool:
        told.append(warmth)
        if len(told) == 2:
            ledger.commit(replace(last, epoch=1, steps={"s": state}))
        return len(told) < 4

    follow(replace(job_of(store, state), steps={}, follow=True), cache, tell, sleep=lambda _: None)
    assert [(warmth.finished, warmth.epoch) for warmth in told] == [(False, None), (False, 0), (True, 1), (True, 1)]
    assert told[-1].fetched == told[1].fetched > 0


def test_no_faster_than_it_may(store: Store, state: StepState, cache: BlockCache) -> None:
    now = [0.0]
    warmth = warm_up(
        job_of(store, state, bytes_per_second=100_000.0),
        cache,
        lambda _: True,
        clock=lambda: now[0],
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
    )
    assert warmth.finished
    assert warmth.seconds == pytest.approx(warmth.fetched / 100_000, rel=1 / 20), "but for the last of twenty blocks"


def test_it_does_not_go_on_for_ever(store: Store, state: StepState, cache: BlockCache) -> None:
    ticks = iter(range(1000))
    told: list[Warmth] = []
    job = job_of(store, state, seconds=10.0)
    warmth = warm_up(job, cache, lambda w: told.append(w) is None, clock=lambda: float(next(ticks)))
    assert not warmth.finished
    assert warmth.error == "not done after 10 s"
    assert told


def test_one_that_follows_outlives_a_store_that_fails(s3_server: S3Server, cache: BlockCache) -> None:
    (port,) = free_ports(1)
    options = {**s3_server.options, "endpoint": f"http://127.0.0.1:{port}", "max_retries": "0"}
    job = WarmupJob("id", "1", open_store(s3_server.url("gone"), options), {}, {"s": (HALVES[1],)}, follow=True)
    wanted, told = iter([True, True, False]), []

    def tell(warmth: Warmth) -> bool:
        told.append(warmth)
        return next(wanted)

    follow(job, cache, tell, sleep=lambda _: None)
    assert told == [Warmth()] * 3
