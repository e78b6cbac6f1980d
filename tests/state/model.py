"""A table of state over a real store, driven the way epochs and compactions drive it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.state.compaction import (
    CompactionJob,
    CompactionPolicy,
    Planning,
    apply_compaction,
    plan_base,
    plan_deltas,
    plan_runs,
    run_compaction,
)
from midstream.state.conversion import Conversion
from midstream.state.hashspace import HashRange, even_ranges
from midstream.state.keys import group_rows
from midstream.state.manifest import TableState, with_range_delete
from midstream.state.reader import PartitionSnapshot
from midstream.state.segment import encode_segment
from midstream.state.store import Store
from midstream.state.tables import TableKind, TableSpec

KEYS = pa.schema([pa.field("k", pa.string()), pa.field("w", pa.int64())])
VALUES = pa.schema([pa.field("v", pa.int64()), pa.field("s", pa.string())])


def spec_of(kind: TableKind, range_column: str | None = "w") -> TableSpec:
    return TableSpec("t", KEYS, VALUES, kind, range_column)


def toy_hash(key: tuple[str | None, int | None], spread: int) -> int:
    """A hash with few values, so that collisions of different keys are the rule, not the exception."""
    return (hash((key[0], key[1], "x")) % spread) * (2**63 // spread) * 2 - 2**63


def next_merge(state: TableState, policy: CompactionPolicy) -> CompactionJob | None:
    settings = Planning(policy, generation=1)
    return plan_base("x", state, settings) or plan_runs("x", state, settings) or plan_deltas("x", state, settings)


class Table:
    """One table, written epoch by epoch."""

    def __init__(self, store: Store, spec: TableSpec, partitions: int = 2, spread: int = 7) -> None:
        self.store = store
        self.spread = spread
        self.state = TableState(spec)
        self.ranges = even_ranges(partitions)
        self.epoch = -1

    def hashes(self, keys: list[tuple[str | None, int | None]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([toy_hash(key, self.spread) for key in keys], dtype=np.int64)

    def write(
        self, rows: list[tuple[tuple[str | None, int | None], tuple[int, str] | None]], *, crash: bool = False
    ) -> None:
        """One epoch: rows of (key, values), None for a tombstone. A crash leaves files that no manifest names."""
        epoch = self.epoch + 1
        segments = []
        for number, part in enumerate(self.ranges):
            mine = sorted(
                ((h, row) for row, h in zip(rows, self.hashes([r[0] for r in rows]), strict=True) if _inside(part, h)),
                key=lambda pair: pair[0],
            )
            if not mine:
                continue
            table = pa.Table.from_pylist(
                [{"k": k[0], "w": k[1], "v": v[0] if v else None, "s": v[1] if v else None} for _, (k, v) in mine],
                self.state.spec.schema,
            )
            hashes = np.array([h for h, _ in mine], dtype=np.int64)
            deleted = np.array([v is None for _, (_, v) in mine])
            encoded = encode_segment(self.state.spec, hashes, table, deleted, block_rows=3)
            path = f"segments/x/t/{epoch:012d}-{number:05d}-{uuid.uuid4().hex}.seg"
            self.store.put(path, encoded.data)
            segments.append(encoded.info(path, epoch, epoch, level=0, schema=len(self.state.conversions)))
        if not crash:
            self.state = replace(self.state, segments=(*self.state.segments, *segments))
            self.epoch = epoch

    def compact(self, *, crash: bool = False) -> bool:
        policy = CompactionPolicy(deltas=2, runs=2, dirty_ratio=0.5, file_bytes=400)
        job = next_merge(self.state, policy)
        if job is None:
            return False
        result = run_compaction(self.store, job)
        if not crash:
            compacted = apply_compaction(self.state, result)
            assert compacted is not None
            self.state = compacted
        return True

    def delete_below(self, bound: int) -> None:
        self.state = with_range_delete(self.state, bound, self.epoch)

    def convert(self, conversion: Conversion) -> None:
        spec = replace(self.state.spec, values=conversion.values)
        self.state = replace(self.state, spec=spec, conversions=(*self.state.conversions, conversion))

    def repartition(self, count: int) -> None:
        self.ranges = even_ranges(count)

    def scan(self) -> list[tuple[tuple[str | None, int | None], tuple[int, str]]]:
        rows = []
        for part in self.ranges:
            for piece in self.snapshot(part).scan("t"):
                rows += [((r["k"], r["w"]), (r["v"], r["s"])) for r in piece.to_pylist()]
        return rows

    def get(self, keys: list[tuple[str | None, int | None]]) -> dict[Any, list[tuple[int, str]]]:
        """All rows of some keys through look-ups, partition by partition."""
        found: dict[Any, list[tuple[int, str]]] = {}
        for part in self.ranges:
            mine = [k for k, h in zip(keys, self.hashes(keys), strict=True) if _inside(part, h)]
            table = pa.Table.from_pylist([{"k": k, "w": w} for k, w in mine], KEYS)
            groups = group_rows(self.hashes(mine), table)
            asked = [(r["k"], r["w"]) for r in groups.keys.to_pylist()]
            snapshot = self.snapshot(part)
            if self.state.spec.kind is TableKind.VALUE:
                answer = snapshot.lookup("t", groups.hashes, groups.keys)
                for key, there, row in zip(asked, answer.found, answer.values.to_pylist(), strict=True):
                    if there:
                        found[key] = [(row["v"], row["s"])]
            else:
                rows = snapshot.lookup_rows("t", groups.hashes, groups.keys)
                for owner, row in zip(rows.owner, rows.values.to_pylist(), strict=True):
                    found.setdefault(asked[owner], []).append((row["v"], row["s"]))
        return found

    def snapshot(self, part: HashRange) -> PartitionSnapshot:
        return PartitionSnapshot(self.store, {"t": self.state}, part)


def _inside(part: HashRange, value: int) -> bool:
    return part.start <= value < part.end
