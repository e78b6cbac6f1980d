"""Compaction: which segments to merge (pure), and the merging itself (run beside the stream, never in it).

Segments of one table form levels: level 0 holds a delta an epoch, level 1 merged deltas, level 2 the base. A level is
older than the one below it. Merging always takes *all* partitions of a stretch of time, so it holds under any
partitioning, and its outputs take the inputs' place at some later commit, if those are all still there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile

import numpy as np
import pyarrow as pa

from midstream.state.conversion import Conversion
from midstream.state.hashspace import HASH_END, HASH_MIN, HashRange
from midstream.state.manifest import TableState
from midstream.state.merge import Piece, merged_pieces, segment_source
from midstream.state.ranges import RangeDelete, expiry_bound
from midstream.state.segment import OPEN_SEGMENTS, SegmentInfo, encode_segment
from midstream.state.store import Store
from midstream.state.tables import TableSpec

_BASE = 2

_TIERS = 4
"""How many times `runs` of them there may be, whatever their sizes."""


@dataclass(frozen=True)
class CompactionPolicy:
    """When to merge. Fewer segments read faster and cost more rewriting.

    `deltas` epochs of level 0 become one run of level 1; `runs` of about one size are merged with each other; and when
    level 1 is larger than `dirty_ratio` of the base, both become the new base. Files are cut at about `file_bytes`.
    """

    deltas: int = 6
    runs: int = 4
    dirty_ratio: float = 0.5
    file_bytes: int = 128 * 2**20


@dataclass(frozen=True)
class Planning:
    """What a plan goes by: the policy of the step, the driver's generation, and segments that other merges have."""

    policy: CompactionPolicy
    generation: int
    taken: frozenset[str] = frozenset()

    def is_taken(self, segments: Sequence[SegmentInfo]) -> bool:
        return any(segment.path in self.taken for segment in segments)


@dataclass(frozen=True)
class CompactionJob:
    """Inputs that become outputs of a level. `final` inputs include the oldest, so tombstones can go.

    The id begins with the driver's generation and is part of the names of the outputs, so that a sweep for orphans can
    tell files still being written.
    """

    id: str
    step: str
    spec: TableSpec
    inputs: tuple[SegmentInfo, ...]
    range_deletes: tuple[RangeDelete, ...]
    level: int
    final: bool
    file_bytes: int
    conversions: tuple[Conversion, ...] = ()


@dataclass(frozen=True)
class CompactionResult:
    """What a finished job offers to the next commit."""

    id: str
    step: str
    table: str
    inputs: frozenset[str]
    outputs: tuple[SegmentInfo, ...]


def plan_deltas(step: str, table: TableState, settings: Planning) -> CompactionJob | None:
    """The merge of deltas into a run: short, and wanted soon, for every delta is searched in every epoch."""
    deltas = tuple(s for s in table.segments if s.level == 0)
    if len(_runs(deltas)) < settings.policy.deltas or settings.is_taken(deltas):
        return None
    first = len(deltas) == len(table.segments)
    return _job(step, table, settings, deltas, level=_BASE if first else 1)


def plan_runs(step: str, table: TableState, settings: Planning) -> CompactionJob | None:
    """The merge of newer runs with each other, also while older ones are on their way into the base."""
    runs = _runs([s for s in table.segments if s.level == 1])
    taken = [number for number, run in enumerate(runs) if settings.is_taken(run)]
    runs = runs[taken[-1] + 1 :] if taken else runs
    alike = _newest_alike(runs)
    if len(alike) < settings.policy.runs and len(runs) >= _TIERS * settings.policy.runs:
        alike = runs
    if len(alike) < settings.policy.runs:
        return None
    return _job(step, table, settings, tuple(s for run in alike for s in run), level=1)


def plan_base(step: str, table: TableState, settings: Planning) -> CompactionJob | None:
    """The merge of everything but the newest into the base: long, and not urgent."""
    base = tuple(s for s in table.segments if s.level == _BASE)
    runs = list(takewhile(lambda run: not settings.is_taken(run), _runs([s for s in table.segments if s.level == 1])))
    merged = tuple(s for run in runs for s in run)
    if len(runs) < 2 or settings.is_taken(base) or _bytes(merged) < settings.policy.dirty_ratio * _bytes(base):
        return None
    return _job(step, table, settings, (*base, *merged), level=_BASE)


def _newest_alike(runs: Sequence[tuple[SegmentInfo, ...]]) -> Sequence[tuple[SegmentInfo, ...]]:
    """The newest runs of about one size. Merging only those, a row is rewritten as often as the table has orders of
    magnitude, not each time a few epochs have gone by."""
    for first in range(len(runs) - 1, 0, -1):
        mean = sum(map(_bytes, runs[first:])) / (len(runs) - first)
        if _bytes(runs[first - 1]) > 2 * mean:
            return runs[first:]
    return runs


def _job(
    step: str, table: TableState, settings: Planning, inputs: tuple[SegmentInfo, ...], level: int
) -> CompactionJob:
    return CompactionJob(
        id=f"g{settings.generation:06d}-{uuid.uuid4().hex}",
        step=step,
        spec=table.spec,
        inputs=inputs,
        range_deletes=table.range_deletes,
        level=level,
        final=inputs[0] is table.segments[0],
        file_bytes=settings.policy.file_bytes,
        conversions=table.conversions,
    )


def _bytes(segments: Sequence[SegmentInfo]) -> int:
    return sum(segment.bytes for segment in segments)


def _runs(segments: Sequence[SegmentInfo]) -> list[tuple[SegmentInfo, ...]]:
    """Segments by the stretch of epochs they cover, oldest first."""
    return [tuple(group) for _, group in groupby(segments, key=lambda s: (s.epoch_from, s.epoch_to))]


def run_compaction(store: Store, job: CompactionJob, pause: Callable[[], None] = lambda: None) -> CompactionResult:
    """Merge the inputs into new files. They are orphans until a manifest names them. There may be a `pause` before each
    piece of the work."""
    sources = [
        segment_source(OPEN_SEGMENTS.get(store, info), expiry_bound(job.range_deletes, info.epoch_to), job.conversions)
        for info in job.inputs
    ]
    whole = HashRange(HASH_MIN, HASH_END)
    pieces = merged_pieces(job.spec, sources, whole, keep_deleted=not job.final, pause=pause)
    epochs = min(s.epoch_from for s in job.inputs), max(s.epoch_to for s in job.inputs)
    outputs = []
    for number, piece in enumerate(_file_sized(pieces, job)):
        encoded = encode_segment(job.spec, piece.hashes, piece.rows, piece.deleted)
        path = f"segments/{job.step}/{job.spec.name}/{epochs[1]:012d}-{job.id}-{number:05d}.seg"
        store.put(path, encoded.data, pause)
        outputs.append(encoded.info(path, *epochs, level=job.level, schema=len(job.conversions)))
    inputs = frozenset(segment.path for segment in job.inputs)
    return CompactionResult(job.id, job.step, job.spec.name, inputs, tuple(outputs))


def _file_sized(pieces: Iterator[Piece], job: CompactionJob) -> Iterator[Piece]:
    """Join pieces until a file is worth its name."""
    rows_in, bytes_in = sum(s.rows for s in job.inputs), sum(s.bytes for s in job.inputs)
    file_rows = max(1, job.file_bytes * rows_in // max(1, bytes_in))
    held: list[Piece] = []
    for piece in pieces:
        held.append(piece)
        if sum(len(p.hashes) for p in held) >= file_rows:
            yield _join(held)
            held = []
    if held:
        yield _join(held)


def _join(pieces: list[Piece]) -> Piece:
    deleted = None
    if any(piece.deleted is not None for piece in pieces):
        deleted = np.concatenate(
            [np.zeros(len(p.hashes), dtype=np.bool_) if p.deleted is None else p.deleted for p in pieces]
        )
    hashes = np.concatenate([piece.hashes for piece in pieces])
    return Piece(hashes, pa.concat_tables([piece.rows for piece in pieces]), deleted)


def apply_compaction(table: TableState, result: CompactionResult) -> TableState | None:
    """The table with the outputs in the inputs' place; None when an input is no longer there."""
    if not result.inputs <= {segment.path for segment in table.segments}:
        return None
    first = next(i for i, segment in enumerate(table.segments) if segment.path in result.inputs)
    kept = [segment for segment in table.segments if segment.path not in result.inputs]
    kept[first:first] = result.outputs
    return replace(table, segments=tuple(kept))
