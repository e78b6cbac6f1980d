"""Sessions: windows that last as long as rows of a key come close enough to each other.

What is kept until a session is over are parts of it, for a row that comes late may join two sessions to one: rows, each
with the window it would have alone, or partial aggregates of rows that are surely of one session. Then they are
aggregated once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.eventtime.finish import ROWS, Finisher
from midstream.eventtime.instants import Instants, instants, least
from midstream.eventtime.late import NEVER, without_rows
from midstream.eventtime.windows import END, START
from midstream.state.keys import flatten, group_rows
from midstream.state.tables import (
    Groups,
    Hashes,
    KeyedResult,
    Mask,
    Positions,
    Snapshot,
    TableDelta,
    TableKind,
    TableSpec,
    Times,
)


@dataclass(frozen=True)
class Sessions:
    """The parts of sessions of each key, from their first row on until the gap behind their last is over."""

    finisher: Finisher
    keys: pa.Schema
    values: pa.Schema
    """What is kept of a part: its window, and what the result is made of."""
    lateness: int

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        # A row that deletes others has no values, also not those that are never null.
        values = pa.schema([field.with_nullable(True) for field in self.values])
        return (TableSpec(ROWS, self.keys, values, TableKind.LIST),)

    @property
    def output(self) -> pa.Schema:
        return self.finisher.output

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        before = NEVER if times.before is None else times.before
        late, rows, groups = without_rows(self._late(before, rows, groups, snapshot), rows, groups)
        owners = np.repeat(np.arange(len(groups)), groups.sizes)
        new = TableDelta(
            groups.hashes[owners],
            groups.keys.take(pa.array(owners)),
            rows.take(pa.array(groups.order)).select(self.values.names),
            added=rows.num_rows,
        )
        if times.firing and times.now is not None:
            output, delta, due = self._fire(times.now - self.lateness, new, snapshot)
        else:
            # A row alone is a session of its own; with others it can only last longer.
            output, delta, due = self.output.empty_table(), new, least(instants(new.values, END))
        deltas = {ROWS: delta} if len(delta.hashes) else {}
        return KeyedResult(output, deltas, late, None if due is None else due + self.lateness)

    def _late(self, before: int, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> Mask:
        """Which rows are of sessions that were over before. One as old as that is in time if its session is longer."""
        late = np.zeros(rows.num_rows, np.bool_)
        alone = instants(rows, END)[groups.order] + self.lateness <= before
        if not alone.any():
            return late
        owners = np.repeat(np.arange(len(groups)), groups.sizes)
        asked = np.unique(owners[alone])
        found = snapshot.lookup_rows(ROWS, groups.hashes[asked], groups.keys.take(pa.array(asked)))
        of_asked = np.isin(owners, asked)
        mine = groups.order[of_asked]
        owner = np.concatenate([asked[found.owner], owners[of_asked]])
        begin, end = (np.concatenate([instants(found.values, c), instants(rows, c)[mine]]) for c in (START, END))
        sessions = _Sessions.of(owner, begin, end)
        over = sessions.of_row(sessions.ends + self.lateness <= before)
        among_new = sessions.order[over] - len(found.owner)
        late[mine[among_new[among_new >= 0]]] = True
        return late

    def _fire(self, bound: int, new: TableDelta, snapshot: Snapshot) -> tuple[pa.Table, TableDelta, int | None]:
        """The results of sessions that are over, the rows that stay, and the end of the next session."""
        results, dues, writes = [self.output.empty_table()], [], _Writes(self.tables[0])
        for hashes, rows in snapshot.scan_hashed(ROWS, new):
            groups = group_rows(hashes, rows.select(self.keys.names))
            owner = np.repeat(np.arange(len(groups)), groups.sizes)
            begin, end = (instants(rows, column)[groups.order] for column in (START, END))
            sessions = _Sessions.of(owner, begin, end)
            over = sessions.ends <= bound
            dues += [int(sessions.ends[~over].min())] if not over.all() else []
            if over.any():
                ordered = rows.take(pa.array(groups.order[sessions.order]))
                results.append(self._results(sessions, over, groups, ordered))
                writes.rewrite(sessions, over, groups, ordered)
        return pa.concat_tables(results), writes.delta(new), min(dues, default=None)

    def _results(self, sessions: _Sessions, over: Mask, groups: Groups, ordered: pa.Table) -> pa.Table:
        of_row = sessions.of_row(over)
        sizes = sessions.sizes[over]
        owners = sessions.owners[over]
        kind = self.values.field(START).type
        keys = groups.keys.take(pa.array(owners))
        for name, moments in ((START, sessions.starts), (END, sessions.ends)):
            keys = keys.append_column(self.values.field(name), pa.array(moments[over]).cast(kind))
        closed = Groups(groups.hashes[owners], keys, np.arange(int(sizes.sum())), np.cumsum(sizes) - sizes)
        rows = flatten(ordered.filter(pa.array(of_row)))
        return self.finisher.of(rows, closed)


@dataclass(frozen=True)
class _Sessions:
    """Parts put in the order of their owners and times, and cut where a session ends."""

    order: Positions
    begins: Positions
    owners: Positions
    starts: Instants
    ends: Instants

    @classmethod
    def of(cls, owner: Positions, begin: Instants, end: Instants) -> _Sessions:
        order = np.lexsort((begin, owner))
        owner, begin = owner[order], begin[order]
        reached = _latest_so_far(owner, end[order])
        first = np.ones(len(order), np.bool_)
        first[1:] = (owner[1:] != owner[:-1]) | (begin[1:] > reached[:-1])
        begins = np.flatnonzero(first)
        lasts = np.append(begins[1:], len(order)) - 1
        return cls(order, begins, owner[begins], begin[begins], reached[lasts])

    @property
    def sizes(self) -> Positions:
        return np.diff(self.begins, append=len(self.order))

    def of_row(self, of_session: Mask) -> Mask:
        """What is true of a session, for each row in this order."""
        return np.repeat(of_session, self.sizes)


def _latest_so_far(owner: Positions, end: Instants) -> Instants:
    """For each part the latest end of it and those of its owner before it. Owners ascend, so that of a part of a later
    owner is always greater once both are one number: the owner, then the rank of the end."""
    ranked, rank = np.unique(end, return_inverse=True)
    greatest: Positions = np.maximum.accumulate(owner * (len(ranked) + 1) + rank)
    return ranked[greatest - owner * (len(ranked) + 1)] if len(ranked) else end


class _Writes:
    """What is written of keys with sessions that are over: that all they had goes, and the rows that stay.

    Keys that share a hash are treated as one.
    """

    def __init__(self, table: TableSpec) -> None:
        self._table = table
        self._hashes: list[Hashes] = []
        self._rows: list[pa.Table] = []
        self._deleted: list[Mask] = []
        self._touched: list[Hashes] = []
        self._seen = 0

    def rewrite(self, sessions: _Sessions, over: Mask, groups: Groups, ordered: pa.Table) -> None:
        touched = np.unique(groups.hashes[sessions.owners[over]])
        gone = np.isin(groups.hashes, touched)
        row_hashes = np.repeat(groups.hashes[sessions.owners], sessions.sizes)
        mine = np.isin(row_hashes, touched)
        stays = mine & ~sessions.of_row(over)
        self._seen += int(np.count_nonzero(mine))
        self._touched.append(touched)
        markers = groups.keys.filter(pa.array(gone))
        for field in self._table.values:
            markers = markers.append_column(field, pa.nulls(markers.num_rows, field.type))
        self._add(groups.hashes[gone], markers, deleted=True)
        self._add(row_hashes[stays], ordered.filter(pa.array(stays)), deleted=False)

    def _add(self, hashes: Hashes, rows: pa.Table, deleted: bool) -> None:
        self._hashes.append(hashes)
        self._rows.append(rows.select(self._table.schema.names))
        self._deleted.append(np.full(len(hashes), deleted))

    def delta(self, new: TableDelta) -> TableDelta:
        """All of it, with the new rows of the other keys."""
        touched = np.concatenate([np.empty(0, np.int64), *self._touched])
        rewritten = np.isin(new.hashes, touched)
        rows = new.keys
        for field in self._table.values:
            rows = rows.append_column(field, new.values.column(field.name))
        self._add(new.hashes[~rewritten], rows.filter(pa.array(~rewritten)), deleted=False)
        hashes, deleted = np.concatenate(self._hashes), np.concatenate(self._deleted)
        order = np.argsort(hashes, kind="stable")
        table = pa.concat_tables([rows.cast(self._table.schema) for rows in self._rows]).take(pa.array(order))
        return TableDelta(
            hashes[order],
            table.select(self._table.keys.names),
            table.select(self._table.values.names),
            deleted[order] if deleted.any() else None,
            added=int(np.count_nonzero(~deleted)),
            removed=self._seen - int(np.count_nonzero(rewritten)),
        )
