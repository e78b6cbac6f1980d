from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from midstream.errors import CheckpointError
from midstream.state.cache import BlockCache
from midstream.state.directory import DirectoryStore
from midstream.state.segment import BLOCK_BYTES, DELETED, HASH, BlockInfo, Segment, SegmentInfo, encode_segment
from midstream.state.tables import TableKind
from tests.state.model import spec_of

ROWS = 1000


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def written(store: DirectoryStore, deleted: bool = False) -> SegmentInfo:
    hashes = np.arange(ROWS, dtype=np.int64) * 10
    rows = pa.table(
        {
            "k": [str(i) for i in range(ROWS)],
            "w": list(range(ROWS)),
            "v": list(range(ROWS)),
            "s": [None if i % 7 else "x" for i in range(ROWS)],
        }
    )
    mask = np.arange(ROWS) % 3 == 0 if deleted else None
    encoded = encode_segment(spec_of(TableKind.VALUE), hashes, rows, mask, block_rows=100)
    store.put("segments/a.seg", encoded.data)
    return encoded.info("segments/a.seg", 3, 3, level=0)


def opened(store: DirectoryStore, info: SegmentInfo) -> Segment:
    return Segment(store, info, BlockCache(Path("/nonexistent"), 1))


@pytest.mark.parametrize("deleted", [False, True])
def test_a_segment_is_an_arrow_stream_with_an_index(store: DirectoryStore, deleted: bool) -> None:
    info = written(store, deleted)
    segment = opened(store, info)
    assert [block.rows for block in segment.blocks] == [100] * 10
    assert (info.first, info.last, info.rows, info.low, info.high) == (0, 9990, ROWS, 0, ROWS - 1)
    assert info.deleted == (334 if deleted else 0)
    assert segment.block(3).hashes.tolist() == list(range(3000, 4000, 10))
    whole = pa.ipc.open_stream(store.read(info.path)).read_all()
    assert whole.num_rows == ROWS
    assert whole.column_names == [HASH, *([DELETED] if deleted else []), "k", "w", "v", "s"]


def test_blocks_of_wide_rows_have_fewer_of_them(store: DirectoryStore) -> None:
    count = 40_000
    keys = {"k": [str(i) for i in range(count)], "w": range(count), "v": range(count)}

    def blocks(text: str) -> list[BlockInfo]:
        rows = pa.table({**{name: list(of) for name, of in keys.items()}, "s": [text] * count})
        encoded = encode_segment(spec_of(TableKind.VALUE), np.arange(count, dtype=np.int64), rows, None)
        store.put("segments/b.seg", encoded.data)
        return opened(store, encoded.info("segments/b.seg", 0, 0, level=0)).blocks

    assert len(blocks("")) == 1
    wide = blocks("x" * 400)
    assert all(BLOCK_BYTES * 0.8 < block.length < BLOCK_BYTES * 1.2 for block in wide[:-1])
    assert [block.rows for block in blocks("x" * 4000)[:-1]] == [4096] * 9


def test_only_blocks_in_the_interval_are_named(store: DirectoryStore) -> None:
    segment = opened(store, written(store))
    assert segment.blocks_between(2500, 4100) == range(2, 5)
    assert segment.blocks_between(991, 999) == range(1, 1)
    assert segment.blocks_between(-5, -1) == range(0)
    assert segment.blocks_between(10_000, 20_000) == range(10, 10)


def damage(store: DirectoryStore, info: SegmentInfo, at: int) -> None:
    path = store.local_path(info.path)
    assert path is not None
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.unlink()
    path.write_bytes(data)


def test_a_flipped_byte_in_a_block_is_found_and_the_file_named(store: DirectoryStore) -> None:
    info = written(store)
    where = opened(store, info).blocks[4]
    damage(store, info, where.offset + where.length - 100)
    segment = opened(store, info)
    segment.block(3)
    with pytest.raises(CheckpointError, match=r"DAMAGED_SEGMENT.*segments/a\.seg.*block 4"):
        segment.block(4)


@pytest.mark.parametrize("from_end", [1, 5, 60, 900])
def test_a_flipped_byte_in_the_index_is_found(store: DirectoryStore, from_end: int) -> None:
    info = written(store)
    damage(store, info, info.bytes - from_end)
    with pytest.raises(CheckpointError, match="DAMAGED_SEGMENT"):
        _ = opened(store, info).blocks


@pytest.mark.parametrize("kept", [0, 3, 500, 20_000])
def test_a_file_cut_short_is_found(store: DirectoryStore, kept: int) -> None:
    info = written(store)
    path = store.local_path(info.path)
    assert path is not None
    data = path.read_bytes()[:kept]
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="DAMAGED_SEGMENT"):
        _ = opened(store, info).blocks


def test_a_missing_file_is_named(store: DirectoryStore) -> None:
    info = replace(written(store), path="segments/b.seg")
    with pytest.raises(CheckpointError, match=r"MISSING_SEGMENT.*segments/b\.seg"):
        _ = opened(store, info).blocks
