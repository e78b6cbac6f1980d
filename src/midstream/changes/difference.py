"""How two tables differ: rows only in one, only in the other, and rows of one key that changed, with samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pyarrow as pa

SAMPLES = 5


@dataclass(frozen=True)
class Difference:
    """Two versions of the same rows. Samples are pairs of an old and a new row, either of which may be absent."""

    rows_old: int = 0
    rows_new: int = 0
    only_old: int = 0
    only_new: int = 0
    changed: int = 0
    samples: tuple[tuple[dict[str, Any] | None, dict[str, Any] | None], ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.only_old or self.only_new or self.changed)

    def __add__(self, other: Difference) -> Difference:
        return Difference(
            self.rows_old + other.rows_old,
            self.rows_new + other.rows_new,
            self.only_old + other.only_old,
            self.only_new + other.only_new,
            self.changed + other.changed,
            (*self.samples, *other.samples)[:SAMPLES],
        )

    def __str__(self) -> str:
        if self.is_none:
            return f"{self.rows_new:,} rows, all the same"
        told = f"{self.only_old:,} only in old, {self.only_new:,} only in new, {self.changed:,} changed"
        return f"{self.rows_old:,} rows in old, {self.rows_new:,} in new: {told}"


def difference(old: pa.Table, new: pa.Table, keys: Sequence[str], most: int = 100_000) -> Difference:
    """Compare by key where rows have one each, else as bags of rows.

    Of tables with more than `most` rows a part of the keys is compared, the same on both sides; without keys there is
    no telling which rows belong together, and only their numbers are.
    """
    keyed = bool(keys) and set(keys) <= set(old.column_names) & set(new.column_names)
    larger = max(len(old), len(new))
    if larger > most:
        if not keyed:
            return Difference(len(old), len(new))
        parts = -(-larger // most)
        old, new = (table.filter(pa.array(_in_part(table, keys, parts))) for table in (old, new))
    before, after = old.to_pylist(), new.to_pylist()
    if keyed:
        by_old, by_new = _by_key(before, keys), _by_key(after, keys)
        if by_old is not None and by_new is not None:
            return _by_keys(by_old, by_new)
    return _as_bags(before, after)


def _in_part(table: pa.Table, keys: Sequence[str], parts: int) -> list[bool]:
    values = zip(*(table.column(key).to_pylist() for key in keys), strict=True)
    return [crc32(repr(value).encode()) % parts == 0 for value in values]


def _by_key(rows: list[dict[str, Any]], keys: Sequence[str]) -> dict[Hashable, dict[str, Any]] | None:
    found = {_frozen([row[key] for key in keys]): row for row in rows}
    return found if len(found) == len(rows) else None


def _by_keys(old: dict[Hashable, dict[str, Any]], new: dict[Hashable, dict[str, Any]]) -> Difference:
    gone = [(row, None) for key, row in old.items() if key not in new]
    come = [(None, row) for key, row in new.items() if key not in old]
    changed = [(old[key], row) for key, row in new.items() if key in old and _frozen(old[key]) != _frozen(row)]
    samples = (*changed, *gone, *come)[:SAMPLES]
    return Difference(len(old), len(new), len(gone), len(come), len(changed), samples)


def _as_bags(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Difference:
    rows = {_frozen(row): row for row in [*old, *new]}
    before, after = Counter(map(_frozen, old)), Counter(map(_frozen, new))
    gone, come = before - after, after - before
    samples = [(rows[key], None) for key in gone] + [(None, rows[key]) for key in come]
    return Difference(len(old), len(new), gone.total(), come.total(), 0, tuple(samples[:SAMPLES]))


def _frozen(value: Any) -> Hashable:
    """A value that can be compared and hashed, nested or not. NaN equals itself here."""
    if isinstance(value, dict):
        return tuple((key, _frozen(part)) for key, part in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return "NaN" if value != value else value
