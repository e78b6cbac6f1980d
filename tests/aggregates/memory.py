"""A snapshot of plain dicts, and the way of an epoch through an aggregate function without Spark.

It checks what the contract of `midstream.state.tables` asks of look-ups and deltas, and believes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from midstream.aggregates.function import AggregateFunction
from midstream.state.tables import Found, FoundRows, Groups, Hashes, KeyedResult, TableDelta, TableKind, TableSpec


def ascends(hashes: Hashes) -> bool:
    return bool((hashes[1:] >= hashes[:-1]).all())


def hashable(value: Any) -> Any:
    """Equal where SQL's `<=>` says so."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple(hashable(v) for v in value.values())
    if isinstance(value, list | tuple):
        return tuple(hashable(v) for v in value)
    return value


def row_tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


@dataclass
class MemoryTable:
    spec: TableSpec
    hashes: dict[Any, int] = field(default_factory=dict)
    keys: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    rows: dict[Any, list[tuple[Any, ...]]] = field(default_factory=dict)

    def apply(self, delta: TableDelta) -> None:
        assert ascends(delta.hashes), "a delta is sorted by hash"
        assert delta.deleted is None
        assert len(delta.hashes) == delta.keys.num_rows == delta.values.num_rows
        assert delta.values.schema.equals(self.spec.values)
        before = sum(map(len, self.rows.values()))
        values = row_tuples(delta.values) if delta.values.num_columns else [()] * len(delta.hashes)
        touched = set()
        for hash_, key, value in zip(delta.hashes.tolist(), row_tuples(delta.keys), values, strict=True):
            name = hashable(key)
            assert self.hashes.setdefault(name, hash_) == hash_, "a key has one hash"
            self.keys[name] = key
            if self.spec.kind is TableKind.VALUE:
                assert name not in touched, "a value table has one row per key"
                touched.add(name)
                self.rows[name] = [value]
            else:
                self.rows.setdefault(name, []).append(value)
        assert sum(map(len, self.rows.values())) - before == delta.added - delta.removed

    def copy(self) -> MemoryTable:
        rows = {key: list(values) for key, values in self.rows.items()}
        return MemoryTable(self.spec, dict(self.hashes), dict(self.keys), rows)

    def values(self, rows: list[tuple[Any, ...]], size: int) -> pa.Table:
        if not self.spec.values.names:
            return pa.table({"": pa.nulls(size)}).select([])
        columns = list(zip(*rows, strict=True)) if rows else [[] for _ in self.spec.values]
        arrays = [pa.array(column, f.type) for column, f in zip(columns, self.spec.values, strict=True)]
        return pa.table(arrays, schema=self.spec.values)


class MemorySnapshot:
    """The state of one partition, changed in place by `apply`."""

    def __init__(self, specs: tuple[TableSpec, ...]) -> None:
        assert len({spec.name for spec in specs}) == len(specs)
        self.tables = {spec.name: MemoryTable(spec) for spec in specs}

    def apply(self, deltas: dict[str, TableDelta]) -> None:
        for name, delta in deltas.items():
            self.tables[name].apply(delta)

    def _asked(self, table: str, hashes: Hashes, keys: pa.Table) -> list[Any]:
        assert ascends(hashes), "hashes ascend"
        assert keys.schema.types == self.tables[table].spec.keys.types
        names = [hashable(key) for key in row_tuples(keys)]
        assert len(set(names)) == len(names) == len(hashes), "keys are distinct"
        for name, hash_ in zip(names, hashes.tolist(), strict=True):
            assert self.tables[table].hashes.get(name, hash_) == hash_
        return names

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> Found:
        held = self.tables[table]
        names = self._asked(table, hashes, keys)
        nothing = tuple(None for _ in held.spec.values)
        rows = [held.rows[name][0] if name in held.rows else nothing for name in names]
        found = np.array([name in held.rows for name in names], np.bool_)
        return Found(found, held.values(rows, len(rows)))

    def lookup_rows(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        held = self.tables[table]
        names = self._asked(table, hashes, keys)
        owned = [(owner, row) for owner, name in enumerate(names) for row in held.rows.get(name, [])]
        owners = np.array([owner for owner, _ in owned], np.int64)
        return FoundRows(owners, held.values([row for _, row in owned], len(owned)))

    def scan(self, table: str, overlay: TableDelta | None = None) -> Iterator[pa.Table]:
        held = self.tables[table].copy()
        if overlay is not None:
            held.apply(overlay)
        flat = [(held.keys[name], row) for name, rows in held.rows.items() for row in rows]
        for start in range(0, len(flat), 3):  # small pieces, so that their seams are tested
            piece = flat[start : start + 3]
            keys = list(zip(*(key for key, _ in piece), strict=True))
            arrays = [pa.array(column, f.type) for column, f in zip(keys, held.spec.keys, strict=True)]
            values = held.values([row for _, row in piece], len(piece))
            yield pa.table([*arrays, *values.columns], schema=held.spec.schema)


def group(rows: pa.Table, keys: list[str], hash_bits: int = 64) -> Groups:
    """Rows grouped by key. Few hash bits make different keys collide."""
    by_key: dict[Any, list[int]] = {}
    for position, key in enumerate(row_tuples(rows.select(keys))):
        by_key.setdefault(hashable(key), []).append(position)
    hashed = sorted((key_hash(key, hash_bits), members) for key, members in by_key.items())
    order = [position for _, members in hashed for position in members]
    sizes = [len(members) for _, members in hashed]
    starts = np.cumsum([0, *sizes])[:-1].astype(np.int64)
    firsts = [members[0] for _, members in hashed]
    return Groups(
        np.array([h for h, _ in hashed], np.int64),
        rows.select(keys).take(pa.array(firsts, pa.int64())).combine_chunks(),
        np.array(order, np.int64),
        starts,
    )


def key_hash(key: Any, bits: int = 64) -> int:
    """A hash that does not change between processes, spread over the whole hash space."""
    full = xxhash.xxh64_intdigest(repr(key).encode())
    return (full >> (64 - bits) << (64 - bits)) - 2**63


class Partition:
    """An aggregate function and its state, fed epoch by epoch."""

    def __init__(self, function: AggregateFunction, hash_bits: int = 64) -> None:
        self.function = function
        self.snapshot = MemorySnapshot(function.tables)
        self.hash_bits = hash_bits

    def epoch(self, rows: pa.Table) -> KeyedResult:
        groups = group(rows, self.function.keys.names, self.hash_bits)
        result = self.function.run(rows, groups, self.snapshot)
        assert result.output.schema.equals(self.function.output)
        result.output.validate(full=True)
        self.snapshot.apply(result.deltas)
        return result
