"""A segment: an immutable file of state rows sorted by hash, cut into blocks that can be read alone.

The file is an Arrow IPC stream (any Arrow reader can open it), one record batch a block, followed by an index that
says where each block lies, which hashes it holds and its checksum. `docs/format.md` specifies it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from midstream.errors import CheckpointError, StoreError
from midstream.state.cache import BlockCache, process_cache
from midstream.state.ranges import bounds
from midstream.state.store import Store
from midstream.state.tables import Hashes, Mask, TableSpec

HASH = "__hash"
DELETED = "__deleted"
FORMAT = 1
_MAGIC = b"MSEG"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_TRAILER = struct.Struct("<I4s")

BLOCK_ROWS = 131_072
"""Rows in a block at most: about 3 MB for a counter. A block is the unit of a ranged read, so it must be small enough
to fetch for one hot key and large enough that a table of 50 million rows has only some hundreds of them to search."""
BLOCK_BYTES = 4 * 2**20
"""About how large a block of wider rows is."""
_FEW_ROWS = 4096
"""Rows in a block at least, however wide they are."""

_TAIL_BYTES = 65_536
"""How much of the end of a file one read brings: the index of a segment of up to some 300 blocks."""


@dataclass(frozen=True)
class BlockInfo:
    """Where one block lies in its file and which hashes it holds (`first` and `last` inclusive)."""

    offset: int
    length: int
    rows: int
    first: int
    last: int
    checksum: str


@dataclass(frozen=True)
class SegmentInfo:
    """What a manifest says of a segment. `low` and `high` bound its range column, for deletes by range."""

    path: str
    rows: int
    deleted: int
    bytes: int
    first: int
    last: int
    epoch_from: int
    epoch_to: int
    level: int
    checksum: str
    low: Any = None
    high: Any = None
    schema: int = 0
    """How many of its table's conversions its rows have been through."""

    def may_hold(self, first: int, last: int) -> bool:
        """Whether it may have hashes of the closed interval `first..last`. Many instances write many files, most of
        which concern nobody who asks: of these not even the index need be read."""
        return self.first <= last and self.last >= first


@dataclass(frozen=True)
class EncodedSegment:
    """The bytes of a segment and the facts its manifest entry needs."""

    data: pa.Buffer
    rows: int
    deleted: int
    first: int
    last: int
    checksum: str
    low: Any
    high: Any

    def info(self, path: str, epoch_from: int, epoch_to: int, level: int, schema: int = 0) -> SegmentInfo:
        return SegmentInfo(
            path=path,
            rows=self.rows,
            deleted=self.deleted,
            bytes=self.data.size,
            first=self.first,
            last=self.last,
            epoch_from=epoch_from,
            epoch_to=epoch_to,
            level=level,
            checksum=self.checksum,
            low=self.low,
            high=self.high,
            schema=schema,
        )


def _block_rows(table: pa.Table) -> int:
    width = table.nbytes / max(1, table.num_rows)
    return int(min(BLOCK_ROWS, max(_FEW_ROWS, BLOCK_BYTES // max(1.0, width))))


def encode_segment(
    spec: TableSpec, hashes: Hashes, rows: pa.Table, deleted: Mask | None, block_rows: int | None = None
) -> EncodedSegment:
    """Write rows (keys, then values; sorted by hash) as the bytes of a segment."""
    columns: dict[str, Any] = {HASH: pa.array(hashes)}
    if deleted is not None and deleted.any():
        columns[DELETED] = pa.array(deleted)
    else:
        deleted = None
    for field in spec.schema:
        columns[field.name] = rows.column(field.name)
    schema = _file_schema(spec, deleted is not None)
    table = pa.table(columns, schema=schema)
    pieces = [schema.serialize()]
    blocks: list[BlockInfo] = []
    offset = pieces[0].size
    block_rows = block_rows or _block_rows(table)
    for start in range(0, table.num_rows, block_rows):
        batch = table.slice(start, block_rows).combine_chunks().to_batches()[0]
        message = batch.serialize()
        blocks.append(
            BlockInfo(
                offset=offset,
                length=message.size,
                rows=batch.num_rows,
                first=int(hashes[start]),
                last=int(hashes[start + batch.num_rows - 1]),
                checksum=_checksum(message),
            )
        )
        pieces.append(message)
        offset += message.size
    index = _encode_index(schema, blocks)
    low, high = bounds(spec, rows)
    data = pa.BufferOutputStream()
    for piece in (*pieces, _END_OF_STREAM, index, _TRAILER.pack(len(index), _MAGIC)):
        data.write(piece)
    return EncodedSegment(
        data=data.getvalue(),
        rows=table.num_rows,
        deleted=0 if deleted is None else int(deleted.sum()),
        first=int(hashes[0]),
        last=int(hashes[-1]),
        checksum=_checksum(index),
        low=low,
        high=high,
    )


def _file_schema(spec: TableSpec, with_deleted: bool) -> pa.Schema:
    fields = [pa.field(HASH, pa.int64(), nullable=False)]
    if with_deleted:
        fields.append(pa.field(DELETED, pa.bool_(), nullable=False))
    # A tombstone has no values, so every stored column is nullable whatever the table says.
    return pa.schema([*fields, *(field.with_nullable(True) for field in spec.schema)])


def _encode_index(schema: pa.Schema, blocks: list[BlockInfo]) -> bytes:
    index = {
        "format": FORMAT,
        "schema": base64.b64encode(schema.serialize()).decode(),
        "blocks": [asdict(block) for block in blocks],
    }
    return json.dumps(index, separators=(",", ":")).encode()


def _checksum(data: bytes | pa.Buffer) -> str:
    return xxhash.xxh3_64_hexdigest(data)


@dataclass(frozen=True)
class Block:
    """One block in memory: the record batch, and views of its hashes and tombstones."""

    batch: pa.RecordBatch
    hashes: Hashes
    deleted: Mask | None


class Segment:
    """A segment opened for reading. Blocks are fetched when touched, verified once and kept mapped."""

    def __init__(self, store: Store, info: SegmentInfo, cache: BlockCache) -> None:
        self._store = store
        self._cache = cache
        self._blocks: dict[int, Block] = {}
        self.info = info

    @cached_property
    def _index(self) -> tuple[pa.Schema, tuple[BlockInfo, ...]]:
        try:
            return self._read_index()
        except CheckpointError:
            # A copy in the cache may be the damaged one: look once at the original.
            self._cache.forget(self._store, self.info.path)
            return self._read_index()

    def _read_index(self) -> tuple[pa.Schema, tuple[BlockInfo, ...]]:
        size = self.info.bytes
        tail_start, tail_length = _tail_of(self.info)
        tail = self._read(tail_start, tail_length)
        if tail.size != tail_length or tail.size < _TRAILER.size:
            raise self._damaged(f"it is shorter than the {size} bytes the manifest says")
        length, magic = _TRAILER.unpack(tail.slice(tail.size - _TRAILER.size))
        start = size - _TRAILER.size - length
        if magic != _MAGIC or start < 0:
            raise self._damaged("it does not end in an index")
        raw = tail.slice(start - tail_start, length) if start >= tail_start else self._read(start, length)
        if _checksum(raw) != self.info.checksum:
            raise self._damaged("its index does not match the manifest's checksum")
        index = json.loads(raw.to_pybytes())
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(index["schema"])))
        return schema, tuple(BlockInfo(**entry) for entry in index["blocks"])

    @property
    def schema(self) -> pa.Schema:
        return self._index[0]

    @property
    def blocks(self) -> tuple[BlockInfo, ...]:
        return self._index[1]

    @cached_property
    def _edges(self) -> tuple[Hashes, Hashes]:
        count = len(self.blocks)
        return (
            np.fromiter((block.first for block in self.blocks), np.int64, count),
            np.fromiter((block.last for block in self.blocks), np.int64, count),
        )

    def blocks_between(self, first: int, last: int) -> range:
        """Numbers of the blocks that may hold hashes of the closed interval `first..last`."""
        firsts, lasts = self._edges
        return range(int(np.searchsorted(lasts, first, "left")), int(np.searchsorted(firsts, last, "right")))

    def is_here(self, number: int) -> bool:
        """Whether a block can be opened without asking the store."""
        where = self.blocks[number]
        return self._cache.is_here(self._store, self.info.path, where.offset, where.length)

    @property
    def index_is_here(self) -> bool:
        return self._cache.is_here(self._store, self.info.path, *_tail_of(self.info))

    def block(self, number: int) -> Block:
        loaded = self._blocks.get(number)
        if loaded is None:
            loaded = self._blocks[number] = self._load(number)
        return loaded

    def among(self, number: int, hashes: Hashes) -> tuple[int, int]:
        """Which of some ascending hashes may be in a block: from the first to before the second."""
        where = self.blocks[number]
        low = int(np.searchsorted(hashes, where.first, "left"))
        return low, int(np.searchsorted(hashes, where.last, "right"))

    def fetch(self, number: int) -> pa.Buffer:
        """The bytes of a block, intact; they are in the cache from then on."""
        where = self.blocks[number]
        data = self._read(where.offset, where.length)
        if not _is_intact(data, where):
            # A copy in the cache may be the damaged one: look once at the original.
            self._cache.forget(self._store, self.info.path)
            data = self._read(where.offset, where.length)
            if not _is_intact(data, where):
                raise self._damaged(f"block {number} does not match its checksum")
        return data

    def bring(self, numbers: Sequence[int]) -> None:
        """Have blocks in the cache, intact, with as few requests as can be."""
        places = [self.blocks[number] for number in numbers]
        try:
            self._cache.bring(self._store, self.info.path, [(block.offset, block.length) for block in places])
        except StoreError as error:
            raise self._told(error) from error
        for number in numbers:
            self.fetch(number)

    def _load(self, number: int) -> Block:
        batch = pa.ipc.read_record_batch(self.fetch(number), self.schema)
        deleted = None
        if self.schema.names[1:2] == [DELETED]:
            deleted = batch.column(1).to_numpy(zero_copy_only=False)
        return Block(batch, batch.column(0).to_numpy(), deleted)

    def _read(self, start: int, length: int) -> pa.Buffer:
        try:
            whole = length == self.info.bytes  # of a small file the first read, for its index, brings all of it
            return self._cache.read(self._store, self.info.path, start, length, whole)
        except StoreError as error:
            raise self._told(error) from error

    def _told(self, error: StoreError) -> CheckpointError | StoreError:
        if error.error_class == "MISSING_OBJECT":
            return CheckpointError.missing_segment(self.info.path, self._store.url)
        return error

    def _damaged(self, reason: str) -> CheckpointError:
        # Once it is restored, nobody shall be shown what was there before.
        self._cache.forget(self._store, self.info.path)
        return CheckpointError.damaged_segment(self.info.path, self._store.url, reason)


def _tail_of(info: SegmentInfo) -> tuple[int, int]:
    """Start and length of what is read first: it has the index, unless that is very large."""
    start = max(0, info.bytes - _TAIL_BYTES)
    return start, info.bytes - start


def _is_intact(data: pa.Buffer, where: BlockInfo) -> bool:
    return data.size == where.length and _checksum(data) == where.checksum


class OpenSegments:
    """The segments this process has open, least recently used closed first. Workers outlive epochs, so this pays."""

    def __init__(self, limit: int = 2048) -> None:
        self._limit = limit
        self._open: OrderedDict[tuple[str, str], Segment] = OrderedDict()

    def get(self, store: Store, info: SegmentInfo) -> Segment:
        key = (store.url, info.path)
        segment = self._open.get(key)
        if segment is None or segment.info.checksum != info.checksum:
            segment = self._open[key] = Segment(store, info, process_cache())
            while len(self._open) > self._limit:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(key)
        return segment


OPEN_SEGMENTS = OpenSegments()
