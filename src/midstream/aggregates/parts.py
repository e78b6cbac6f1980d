"""Keys whose state is in parts, each kept by an instance of its own: a result is made of all of them.

In the round with the rows, a part takes up its rows as if it were a key by itself, and gives nothing. In a round after
it, the instance the key belongs to looks its parts up and gives what they make together. In that round a key may also
get other parts than it had: each instance writes and deletes what is its own, by the state they all read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.aggregates.arrays import Columns, conform
from midstream.aggregates.distinct import DistinctCount
from midstream.aggregates.function import MAIN, AggregateFunction, state_columns
from midstream.aggregates.runs import Runs
from midstream.state.hashspace import SUBKEY_MASK, HashRange, subkey_hashes
from midstream.state.keys import group_rows
from midstream.state.matching import match_groups
from midstream.state.splits import Split, divided_anew, hashes_of, place_around, whole_at
from midstream.state.tables import Groups, Hashes, KeyedResult, Mask, Snapshot, TableDelta, TableSpec, WideSnapshot


@dataclass(frozen=True)
class _WithParts:
    """An aggregate of which some keys are in parts."""

    aggregate: AggregateFunction
    splits: tuple[Split, ...]

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return self.aggregate.tables

    @property
    def output(self) -> pa.Schema:
        return self.aggregate.output


@dataclass(frozen=True)
class Parted(_WithParts):
    """It in the round with the rows. Keys in parts give nothing in it; which of them got rows is told."""

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        columns, deltas = self.aggregate.update(rows, groups, snapshot)
        apart = hashes_of(self.splits)
        in_parts = np.isin(groups.hashes, apart)
        if self.aggregate.complete:
            output = pa.concat_tables(self.aggregate.everything(snapshot, deltas, apart=apart))
        else:
            whole = pa.array(np.flatnonzero(~in_parts))
            of_whole = {name: column.take(whole) for name, column in columns.items()}
            output = self.aggregate.finished(groups.keys.take(whole), of_whole)
        whole_of = whole_at(self.splits)
        touched = {whole_of[hash_] for hash_ in groups.hashes[in_parts].tolist()}
        return KeyedResult(output, deltas, touched=tuple(sorted(touched)))


@dataclass(frozen=True)
class Joined(_WithParts):
    """It in the round after that: results of the keys in parts that were `touched`, or of all of them. If other parts
    are `wanted`, their state is divided anew."""

    wanted: tuple[Split, ...]
    touched: frozenset[int]

    def run_within(self, mine: HashRange, snapshot: WideSnapshot) -> KeyedResult:
        due = [s for s in self.splits if s.hash in mine and (self.aggregate.complete or s.hash in self.touched)]
        output = results_of(self.aggregate, due, snapshot)
        if self.wanted == self.splits:
            return KeyedResult(output)
        had = {split.hash for split in self.splits}
        made = tuple(s for s in self.wanted if s.hash in mine and (s.hash in had or self._exists(s.hash, snapshot)))
        return KeyedResult(output, self._divided_anew(mine, snapshot), splits=made)

    def _exists(self, hash_: int, snapshot: WideSnapshot) -> bool:
        """Only a key that has state can be divided: so a part tells by the key itself what it is a part of."""
        return bool(_rows_at(snapshot, [hash_])[1].num_rows)

    def _divided_anew(self, mine: HashRange, snapshot: WideSnapshot) -> dict[str, TableDelta]:
        writes = {table.name: _Writes(table) for table in self.tables}
        for before, after in divided_anew(self.splits, self.wanted):
            if any(place in mine for place in (*before.places, *after.places)):
                _, rows = _rows_at(snapshot, [before.hash])
                for row in range(rows.num_rows):
                    key = rows.select(self.aggregate.keys.names).slice(row, 1)
                    self._divide(key, before, after, mine, snapshot, writes)
        return {name: delta for name, write in writes.items() if (delta := write.delta()) is not None}

    def _divide(
        self,
        key: pa.Table,
        before: Split,
        after: Split,
        mine: HashRange,
        snapshot: WideSnapshot,
        writes: Mapping[str, _Writes],
    ) -> None:
        places = hashes_of([before, after])
        found = snapshot.lookup(MAIN, places, _repeated(key, len(places)))
        had = np.flatnonzero(found.found & np.isin(places, before.places))
        groups = Groups(places[had[:1]], key, np.arange(len(had)), np.zeros(1, np.int64))
        whole = _merged(self.aggregate, found.values.take(pa.array(had)), groups)
        parts: list[Columns] = [whole, *({} for _ in range(after.ways - 1))]
        for partial in self.aggregate.partials:
            if isinstance(partial, DistinctCount):
                counts = _divide_values(partial.table, key, before, after, mine, snapshot, writes[partial.table.name])
                for part, count in zip(parts, counts, strict=True):
                    if count or part is whole:
                        part[partial.name] = pa.array([count], pa.int64())
        wanted = {place: part for place, part in zip(after.places, parts, strict=True) if part}
        main = self.aggregate.tables[0].values
        for place, exists in zip(places.tolist(), found.found.tolist(), strict=True):
            if place in mine and place in wanted:
                columns = [wanted[place].get(f.name, pa.nulls(1, f.type)) for f in main]
                values = pa.table(columns, schema=main) if main.names else key.select([])
                writes[MAIN].put(np.array([place]), key, values, fresh=int(not exists))
            elif place in mine and exists:
                writes[MAIN].delete(np.array([place]), key)


def results_of(aggregate: AggregateFunction, splits: Sequence[Split], snapshot: WideSnapshot) -> pa.Table:
    """The results of keys that are in parts."""
    hashes, rows = _rows_at(snapshot, hashes_of(splits))
    if not rows.num_rows:
        return aggregate.output.empty_table()
    whole_of = whole_at(splits)
    wholes = np.array([whole_of[hash_] for hash_ in hashes.tolist()], np.int64)
    groups = group_rows(wholes, rows.select(aggregate.keys.names))
    return aggregate.finished(groups.keys, _merged(aggregate, rows, groups))


def _merged(aggregate: AggregateFunction, rows: pa.Table, groups: Groups) -> Columns:
    """The state of keys, made of the rows of their parts."""
    parts, runs = state_columns(rows, aggregate.tables[0].values), Runs.of(groups)
    columns: Columns = {}
    with np.errstate(invalid="ignore", over="ignore"):
        for partial in aggregate.partials:
            columns |= partial.merged(parts, runs)
    return columns


def _rows_at(snapshot: WideSnapshot, hashes: Iterable[int]) -> tuple[Hashes, pa.Table]:
    """The live rows of the main table that have these hashes, whatever their keys."""
    where, keys = snapshot.keys_at(MAIN, np.asarray(list(hashes), np.int64))
    found = snapshot.lookup(MAIN, where, keys)
    live = pa.array(np.flatnonzero(found.found))
    values = found.values.take(live)
    keys = keys.take(live)
    rows = pa.table([*keys.columns, *values.columns], names=[*keys.column_names, *values.column_names])
    return where[found.found], rows


def _divide_values(
    table: TableSpec,
    key: pa.Table,
    before: Split,
    after: Split,
    mine: HashRange,
    snapshot: WideSnapshot,
    writes: _Writes,
) -> list[int]:
    """Bring the distinct values of a key to the parts they belong to; how many each part has then."""
    counts = np.zeros(after.ways, np.int64)
    places = np.array(after.places, np.int64)
    for place in before.places:
        for hashes, rows in snapshot.within(place_around(place)).scan_hashed(table.name):
            own = np.flatnonzero(match_groups(key, rows.select(key.column_names)) >= 0)
            hashes, rows = hashes[own], rows.take(pa.array(own)).select(table.keys.names)
            subkeys = (hashes ^ np.int64(before.hash)) & SUBKEY_MASK
            part = subkeys % after.ways
            counts += np.bincount(part, minlength=after.ways)
            moves = places[part] != place
            there = subkey_hashes(places[part], subkeys)
            arrives = moves & mine.holds(there)
            writes.put(there[arrives], rows.filter(pa.array(arrives)), fresh=int(arrives.sum()))
            if place in mine:
                writes.delete(hashes[moves], rows.filter(pa.array(moves)))
    return [int(count) for count in counts]


def _repeated(row: pa.Table, times: int) -> pa.Table:
    return row.take(pa.array(np.zeros(times, np.int64)))


@dataclass
class _Writes:
    """Rows to write to a table, and to delete from it, collected in any order."""

    table: TableSpec
    added: int = 0
    removed: int = 0
    _hashes: list[Hashes] = field(default_factory=list)
    _keys: list[pa.Table] = field(default_factory=list)
    _values: list[pa.Table] = field(default_factory=list)
    _deleted: list[Mask] = field(default_factory=list)

    def put(self, hashes: Hashes, keys: pa.Table, values: pa.Table | None = None, *, fresh: int) -> None:
        self._add(hashes, keys, keys.select([]) if values is None else values, False)
        self.added += fresh

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        nulls = [pa.nulls(len(hashes), f.type) for f in self.table.values]
        self._add(hashes, keys, pa.table(nulls, schema=self.table.values) if nulls else keys.select([]), True)
        self.removed += len(hashes)

    def _add(self, hashes: Hashes, keys: pa.Table, values: pa.Table, deleted: bool) -> None:
        if len(hashes):
            self._hashes.append(hashes)
            self._keys.append(_conformed(keys, self.table.keys))
            self._values.append(values)
            self._deleted.append(np.full(len(hashes), deleted))

    def delta(self) -> TableDelta | None:
        if not self._hashes:
            return None
        hashes, deleted = np.concatenate(self._hashes), np.concatenate(self._deleted)
        order = np.argsort(hashes, kind="stable")
        keys = pa.concat_tables(self._keys).take(pa.array(order))
        values = pa.concat_tables(self._values).take(pa.array(order)) if self.table.values.names else keys.select([])
        return TableDelta(hashes[order], keys, values, deleted[order], self.added, self.removed)


def _conformed(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.table([conform(keys.column(f.name), f.type) for f in schema], schema=schema)
