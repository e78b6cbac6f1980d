"""Files that a commit is about to name are brought by tasks of the epoch before it."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from midstream.state import cache as caches
from midstream.state.cache import BlockCache, process_cache
from midstream.state.hashspace import even_ranges
from midstream.state.manifest import TableState
from midstream.state.segment import Segment, SegmentInfo, encode_segment
from midstream.state.store import Store, open_store
from midstream.state.tables import TableKind, TableSpec
from midstream.task import ahead
from midstream.task.ahead import Ahead
from tests.servers import S3Server

ROWS, BLOCK = 4_000, 100
SPEC = TableSpec("t", pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]), TableKind.VALUE, None)
HALVES = even_ranges(2)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSTREAM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(caches, "_of_process", None)
    ahead._cache.cache_clear()


@pytest.fixture
def store(s3_server: S3Server) -> Store:
    return open_store(s3_server.url(f"ahead/{uuid4().hex}"), s3_server.options)


@pytest.fixture
def merged(store: Store) -> SegmentInfo:
    hashes = np.linspace(-(2**63), 2**63 - 2**12, ROWS).astype(np.int64)
    encoded = encode_segment(SPEC, hashes, pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS)}), None, BLOCK)
    store.put("segments/s/t/merged.seg", encoded.data)
    return encoded.info("segments/s/t/merged.seg", 0, 6, 1)


def bring(store: Store, files: dict[str, tuple[SegmentInfo, ...]]) -> None:
    Ahead(files).bring(store, {"t": TableState(SPEC, ())}, HALVES[1]).join(60)


def test_what_a_partition_will_read_comes_and_is_not_counted_as_waited_for(store: Store, merged: SegmentInfo) -> None:
    bring(store, {"t": (merged,)})
    segment = Segment(store, merged, process_cache())
    here = [number for number in range(ROWS // BLOCK) if segment.is_here(number)]
    assert here == list(range(ROWS // BLOCK // 2, ROWS // BLOCK))
    assert segment.block(here[0])
    assert process_cache().fetched_bytes == 0
    assert ahead._cache.cache_info().currsize == 1


def test_what_has_come_does_not_come_again(store: Store, merged: SegmentInfo, tmp_path: Path) -> None:
    def copies() -> dict[Path, int]:
        return {copy: copy.stat().st_ino for copy in (tmp_path / "cache").rglob("*.seg/*")}

    bring(store, {"t": (merged,)})
    before = copies()
    assert before
    bring(store, {"t": (merged,)})
    assert copies() == before


def test_a_table_that_is_gone_is_left_out(store: Store, merged: SegmentInfo, tmp_path: Path) -> None:
    bring(store, {"gone": (merged,)})
    assert list((tmp_path / "cache").rglob("*.seg/*")) == []


def test_what_cannot_be_brought_is_left_to_the_tasks(
    store: Store, merged: SegmentInfo, caplog: pytest.LogCaptureFixture
) -> None:
    store.delete([merged.path])
    with caplog.at_level(logging.WARNING):
        bring(store, {"t": (merged,)})
    assert "fetched by the tasks that need it" in caplog.text


def test_its_copies_are_those_of_the_process(tmp_path: Path) -> None:
    beside: BlockCache = ahead._cache(0)
    assert beside.directory == process_cache().directory == tmp_path / "cache"
    assert beside is not process_cache()
