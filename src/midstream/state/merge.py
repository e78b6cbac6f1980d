"""Merging sorted sources of rows into the rows that live: what scans read and compaction writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.state.conversion import Conversion, converted
from midstream.state.hashspace import HashRange
from midstream.state.keys import group_rows
from midstream.state.ranges import drops_freely, expired
from midstream.state.segment import DELETED, HASH, Segment
from midstream.state.tables import Hashes, Mask, Positions, TableDelta, TableKind, TableSpec

PIECE_ROWS = 262_144
"""About how many rows of the largest source a merge holds at once: bounds memory whatever the table's size."""


@dataclass(frozen=True)
class Piece:
    """Merged rows (keys, then values) of a stretch of the hash space, sorted by hash."""

    hashes: Hashes
    rows: pa.Table
    deleted: Mask | None


@dataclass(frozen=True)
class Source:
    """Rows sorted by hash that can be read by range. `cuts` are hashes at which it is cheap to cut."""

    rows: int
    cuts: tuple[int, ...]
    read: Callable[[TableSpec, HashRange], Piece | None]


def segment_source(segment: Segment, bound: object | None, conversions: Sequence[Conversion] = ()) -> Source:
    """A segment as a source; rows whose range column lies below the bound are left out.

    `conversions` are all those of the table; the segment knows which of them its rows still need.
    """
    needed = conversions[segment.info.schema :]

    def read(spec: TableSpec, wanted: HashRange) -> Piece | None:
        batches = []
        for number in segment.blocks_between(wanted.start, wanted.end - 1):
            block = segment.block(number)
            part = wanted.slice_of(block.hashes)
            if part.start < part.stop:
                batches.append(block.batch.slice(part.start, part.stop - part.start))
        if not batches:
            return None
        table = pa.Table.from_batches(batches).combine_chunks()
        piece = _piece(spec, table, needed)
        return piece if bound is None else _without_expired(spec, piece, bound)

    return Source(segment.info.rows, tuple(block.first for block in segment.blocks), read)


def _piece(spec: TableSpec, table: pa.Table, conversions: Sequence[Conversion]) -> Piece:
    deleted = None
    if DELETED in table.column_names:
        deleted = table.column(DELETED).to_numpy()
    hashes = table.column(HASH).to_numpy()
    if conversions:
        table = converted(stored_rows(table), spec.keys.names, conversions, deleted)
    stored = pa.schema([f.with_nullable(True) for f in spec.schema])
    return Piece(hashes, table.select(spec.schema.names).cast(stored), deleted)


def stored_rows(table: pa.Table) -> pa.Table:
    """Keys and values of a segment, whatever schema it was written with."""
    return table.select([name for name in table.column_names if name not in (HASH, DELETED)])


def _without_expired(spec: TableSpec, piece: Piece, bound: object) -> Piece:
    assert spec.range_column is not None
    gone = expired(piece.rows.column(spec.range_column), bound)
    if not drops_freely(spec):
        # An older row of the key may have a later expiry: the newest row must go on hiding it, as a tombstone.
        return Piece(piece.hashes, piece.rows, gone if piece.deleted is None else gone | piece.deleted)
    # A tombstone stays: it may hide rows of older segments that the bound does not cover.
    return _filtered(piece, ~gone if piece.deleted is None else ~gone | piece.deleted)


def _filtered(piece: Piece, keep: Mask) -> Piece:
    if keep.all():
        return piece
    deleted = None if piece.deleted is None else piece.deleted[keep]
    return Piece(piece.hashes[keep], piece.rows.filter(pa.array(keep)), deleted)


def delta_source(spec: TableSpec, delta: TableDelta) -> Source:
    """Rows about to be written, as the newest source of a merge."""
    stored = pa.schema([f.with_nullable(True) for f in spec.schema])
    columns = [*delta.keys.columns, *(delta.values.column(name) for name in spec.values.names)]
    rows = pa.Table.from_arrays(columns, names=spec.schema.names).cast(stored)

    def read(_: TableSpec, wanted: HashRange) -> Piece | None:
        part = wanted.slice_of(delta.hashes)
        if part.start >= part.stop:
            return None
        deleted = None if delta.deleted is None else delta.deleted[part]
        return Piece(delta.hashes[part], rows.slice(part.start, part.stop - part.start), deleted)

    return Source(len(delta.hashes), tuple(int(h) for h in delta.hashes[::PIECE_ROWS]), read)


def merged_pieces(
    spec: TableSpec,
    sources: Sequence[Source],
    within: HashRange,
    keep_deleted: bool,
    pause: Callable[[], None] = lambda: None,
) -> Iterator[Piece]:
    """Merge sources, oldest first, into live rows. Tombstones are kept where older segments may still need them. There
    may be a `pause` before rows are read."""
    for stretch in _stretches(sources, within):
        pause()
        pieces = [piece for source in sources if (piece := source.read(spec, stretch)) and len(piece.hashes)]
        if pieces:
            merged = _merge(spec, pieces, keep_deleted)
            if len(merged.hashes):
                yield merged


def _stretches(sources: Sequence[Source], within: HashRange) -> Iterator[HashRange]:
    """Cut the range so that each stretch holds about one piece of the largest source."""
    largest = max(sources, key=lambda source: source.rows, default=None)
    if largest is None:
        return
    step = max(1, PIECE_ROWS * len(largest.cuts) // max(1, largest.rows))
    start = within.start
    for cut in largest.cuts[step::step]:
        if start < cut < within.end:
            yield HashRange(start, cut)
            start = cut
    yield HashRange(start, within.end)


def _merge(spec: TableSpec, pieces: Sequence[Piece], keep_deleted: bool) -> Piece:
    if len(pieces) == 1 and (pieces[0].deleted is None or keep_deleted):
        return pieces[0]
    hashes = np.concatenate([piece.hashes for piece in pieces])
    rows = pa.concat_tables([piece.rows for piece in pieces]).combine_chunks()
    deleted = np.concatenate(
        [np.zeros(len(p.hashes), dtype=np.bool_) if p.deleted is None else p.deleted for p in pieces]
    )
    groups = group_rows(hashes, rows.select(spec.keys.names))
    ends = np.append(groups.starts[1:], len(groups.order))
    if spec.kind is TableKind.VALUE:
        chosen = groups.order[ends - 1]  # pieces are oldest first, so the last row of a key is the newest
    else:
        source_of = np.repeat(np.arange(len(pieces)), [len(p.hashes) for p in pieces])
        chosen = _live_list_rows(groups.order, groups.sizes, deleted, source_of)
    if not keep_deleted:
        chosen = chosen[~deleted[chosen]]
    kept = deleted[chosen]
    return Piece(hashes[chosen], rows.take(pa.array(chosen)), kept if kept.any() else None)


def _live_list_rows(order: Positions, sizes: Positions, deleted: Mask, source_of: Positions) -> Positions:
    """Rows of a list table that survive: those from the newest source with a tombstone on, per key."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    cut = np.full(len(sizes), -1, dtype=np.int64)
    marked = deleted[order]
    np.maximum.at(cut, group[marked], source_of[order[marked]])
    return order[source_of[order] >= cut[group]]
