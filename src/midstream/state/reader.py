"""Reading state: the snapshot of one partition, searched newest segment first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pyarrow as pa

from midstream.state.conversion import converted
from midstream.state.gather import Gather
from midstream.state.hashspace import HashRange
from midstream.state.keys import flatten, group_rows, keys_equal_at
from midstream.state.manifest import TableState
from midstream.state.merge import Source, delta_source, merged_pieces, segment_source, stored_rows
from midstream.state.ranges import expired, expiry_bound
from midstream.state.segment import OPEN_SEGMENTS, Block, Segment, SegmentInfo
from midstream.state.store import Store
from midstream.state.tables import Found, FoundRows, Hashes, Mask, Positions, TableDelta, TableSpec


class Fetch(Enum):
    """What is fetched before it is asked for. Nothing is best; the others are there to compare with."""

    NOTHING = 0
    UP_TO_OWN = 1
    ALL = 2


@dataclass(frozen=True)
class PartitionSnapshot:
    """The state of one partition as of a manifest. Reads touch only the blocks that hold the keys asked for."""

    store: Store
    tables: Mapping[str, TableState]
    partition: HashRange

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> Found:
        state = self.tables[table]
        found = np.zeros(len(hashes), dtype=np.bool_)
        gather = Gather(state.spec.values, len(hashes))
        pending = np.arange(len(hashes), dtype=np.int64)
        for segment in self._newest_first(state, hashes):
            if not len(pending):
                break
            bound = expiry_bound(state.range_deletes, segment.info.epoch_to)
            resolved = np.zeros(len(pending), dtype=np.bool_)
            for block, asked, rows in _matches(segment, state.spec, hashes[pending], keys, pending):
                resolved[asked] = True
                alive = _alive(block, rows, state.spec, bound)
                if alive is not None:
                    asked, rows = asked[alive], rows[alive]
                owners = pending[asked]
                found[owners] = True
                batch, rows = _converted(segment, state, block, rows)
                gather.add(batch, rows, owners)
            pending = pending[~resolved]
        return Found(found, gather.finish())

    def lookup_rows(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        state = self.tables[table]
        open_keys = np.arange(len(hashes), dtype=np.int64)
        owners: list[Positions] = []
        pieces: list[pa.RecordBatch] = []
        for segment in self._newest_first(state, hashes):
            if not len(open_keys):
                break
            bound = expiry_bound(state.range_deletes, segment.info.epoch_to)
            closed = np.zeros(len(open_keys), dtype=np.bool_)
            segment_owners: list[Positions] = []
            segment_pieces: list[pa.RecordBatch] = []
            for block, asked, rows in _all_matches(segment, state.spec, hashes[open_keys], keys, open_keys):
                if block.deleted is not None:
                    closed[asked[block.deleted[rows]]] = True
                alive = _alive(block, rows, state.spec, bound)
                if alive is not None:
                    asked, rows = asked[alive], rows[alive]
                segment_owners.append(open_keys[asked])
                batch, rows = _converted(segment, state, block, rows)
                segment_pieces.append(batch.select(state.spec.values.names).take(pa.array(rows)))
            owners[:0] = segment_owners  # segments come newest first, rows are wanted oldest first
            pieces[:0] = segment_pieces
            open_keys = open_keys[~closed]
        owner = np.concatenate(owners) if owners else np.empty(0, dtype=np.int64)
        stored = pa.schema([f.with_nullable(True) for f in state.spec.values])
        values = pa.Table.from_batches([p.cast(stored) for p in pieces], stored)
        order = np.argsort(owner, kind="stable")
        return FoundRows(owner[order], values.take(pa.array(order)))

    def keys_at(self, table: str, hashes: Hashes) -> tuple[Hashes, pa.Table]:
        spec = self.tables[table].spec
        where: list[Hashes] = [np.empty(0, np.int64)]
        keys: list[pa.Table] = [spec.keys.empty_table()]
        for segment in self._newest_first(self.tables[table], hashes):
            for block, low, high in _touched_blocks(segment, hashes):
                _, rows = _equal_hashes(block, hashes[low:high])
                where.append(block.hashes[rows])
                found = block.batch.select(spec.keys.names).take(pa.array(rows))
                keys.append(pa.Table.from_batches([found]).cast(spec.keys))
        groups = group_rows(np.concatenate(where), flatten(pa.concat_tables(keys)))
        return groups.hashes, groups.keys

    def within(self, range: HashRange) -> PartitionSnapshot:
        return replace(self, partition=range)

    def scan(self, table: str, overlay: TableDelta | None = None) -> Iterator[pa.Table]:
        for _, rows in self.scan_hashed(table, overlay):
            yield rows

    def scan_hashed(self, table: str, overlay: TableDelta | None = None) -> Iterator[tuple[Hashes, pa.Table]]:
        state = self.tables[table]
        sources: list[Source] = [
            segment_source(segment, expiry_bound(state.range_deletes, segment.info.epoch_to), state.conversions)
            for segment in self._segments(state, self.partition.start, self.partition.end - 1)
        ]
        if overlay is not None and len(overlay.hashes):
            sources.append(delta_source(state.spec, overlay))
        for piece in merged_pieces(state.spec, sources, self.partition, keep_deleted=False):
            yield piece.hashes, piece.rows

    def fetch(self, what: Fetch, hashes: Hashes) -> None:
        """Bring blocks of the partition here, in plain order: all of them, or as far as these keys need."""
        if what is Fetch.NOTHING:
            return
        first, last = self.partition.start, self.partition.end - 1
        blocks = [
            (segment, number)
            for state in self.tables.values()
            for segment in self._segments(state, first, last)
            for number in segment.blocks_between(first, last)
        ]
        if what is Fetch.UP_TO_OWN:
            own = [at for at, (segment, number) in enumerate(blocks) if np.subtract(*segment.among(number, hashes)) < 0]
            blocks = blocks[: own[-1] + 1] if own else []
        for segment, number in blocks:
            segment.block(number)

    def open(self, until: Callable[[], bool]) -> None:
        """Open the blocks of the partition that are on this machine, those first that are looked at first when keys are
        looked up, until told that it is enough."""
        first, last = self.partition.start, self.partition.end - 1
        for state in self.tables.values():
            for segment in reversed(self._segments(state, first, last)):
                for number in segment.blocks_between(first, last) if segment.index_is_here else ():
                    if until():
                        return
                    if segment.is_here(number):
                        segment.block(number)

    def at_hand(self, hash_: int) -> PartitionSnapshot:
        """The same, of only those segments whose rows of a hash are on this machine."""

        def is_here(info: SegmentInfo) -> bool:
            if not info.may_hold(hash_, hash_):
                return False
            segment = OPEN_SEGMENTS.get(self.store, info)
            return segment.index_is_here and all(map(segment.is_here, segment.blocks_between(hash_, hash_)))

        here = {
            name: replace(state, segments=tuple(filter(is_here, state.segments))) for name, state in self.tables.items()
        }
        return replace(self, tables=here)

    def _newest_first(self, state: TableState, hashes: Hashes) -> Iterator[Segment]:
        if len(hashes):
            yield from reversed(self._segments(state, int(hashes[0]), int(hashes[-1])))

    def _segments(self, state: TableState, first: int, last: int) -> list[Segment]:
        return [OPEN_SEGMENTS.get(self.store, info) for info in state.segments if info.may_hold(first, last)]


def _converted(segment: Segment, state: TableState, block: Block, rows: Positions) -> tuple[pa.RecordBatch, Positions]:
    """Rows of a block as the table has them now: the block itself, or just these rows, converted."""
    needed = state.conversions[segment.info.schema :]
    if not needed:
        return block.batch, rows
    if not len(rows):
        return pa.RecordBatch.from_pylist([], state.spec.values), rows
    picked = stored_rows(pa.Table.from_batches([block.batch]).take(pa.array(rows)))
    current = converted(picked, state.spec.keys.names, needed, None).combine_chunks()
    return current.to_batches()[0], np.arange(len(rows), dtype=np.int64)


def _alive(block: Block, rows: Positions, spec: TableSpec, bound: object | None) -> Mask | None:
    """Which of the rows are neither deleted nor expired; None for all of them."""
    alive: Mask | None = None
    if block.deleted is not None:
        alive = ~block.deleted[rows]
    if bound is not None and spec.range_column is not None:
        fresh = ~expired(block.batch.column(spec.range_column).take(pa.array(rows)), bound)
        alive = fresh if alive is None else alive & fresh
    return alive


def _matches(
    segment: Segment, spec: TableSpec, hashes: Hashes, keys: pa.Table, pending: Positions
) -> Iterator[tuple[Block, Positions, Positions]]:
    """Where asked keys stand in a segment of a value table: block, position among the asked, row in the block."""
    for block, low, high in _touched_blocks(segment, hashes):
        asked = np.arange(low, high, dtype=np.int64)
        rows = np.searchsorted(block.hashes, hashes[low:high], "left")
        while len(asked):
            # A hash greater than all lands past the end; the last row, looked at instead, has another hash.
            same = np.flatnonzero(block.hashes[np.minimum(rows, len(block.hashes) - 1)] == hashes[asked])
            asked, rows = asked[same], rows[same]
            equal = _same_keys(block, rows, spec, keys, pending[asked])
            if equal.all():
                yield block, asked, rows
                break
            yield block, asked[equal], rows[equal]
            # Another key with the same hash: look at the next row, if there is one.
            more = ~equal & (rows + 1 < len(block.hashes))
            asked, rows = asked[more], rows[more] + 1


def _all_matches(
    segment: Segment, spec: TableSpec, hashes: Hashes, keys: pa.Table, pending: Positions
) -> Iterator[tuple[Block, Positions, Positions]]:
    """Like `_matches` for a list table, where a key may have many rows."""
    for block, low, high in _touched_blocks(segment, hashes):
        asked, rows = _equal_hashes(block, hashes[low:high])
        if not len(rows):
            continue
        asked = asked + low
        equal = _same_keys(block, rows, spec, keys, pending[asked])
        yield block, asked[equal], rows[equal]


def _equal_hashes(block: Block, hashes: Hashes) -> tuple[Positions, Positions]:
    """All rows of a block that have one of these hashes, each with the position of the hash."""
    begin = np.searchsorted(block.hashes, hashes, "left")
    counts = np.searchsorted(block.hashes, hashes, "right") - begin
    asked = np.repeat(np.arange(len(hashes), dtype=np.int64), counts)
    within = np.arange(len(asked), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return asked, np.repeat(begin, counts) + within


def _touched_blocks(segment: Segment, hashes: Hashes) -> Iterator[tuple[Block, int, int]]:
    """Blocks that may hold asked hashes, each with the part of the (ascending) hashes that falls into it."""
    for number in segment.blocks_between(int(hashes[0]), int(hashes[-1])):
        low, high = segment.among(number, hashes)
        if low < high:
            yield segment.block(number), low, high


def _same_keys(block: Block, rows: Positions, spec: TableSpec, keys: pa.Table, asked: Positions) -> Mask:
    return keys_equal_at(keys, asked, block.batch.select(spec.keys.names), rows)
