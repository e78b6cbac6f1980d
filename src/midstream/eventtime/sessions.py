"""Sessions: windows that last as long as rows of a key come close enough to each other.

Rows are kept until their session is over, for one that comes late may join two sessions to one. Then they are
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
    """The rows of each key with the window each would have alone: from its time on, as long as the gap."""

    finisher: Finisher
    keys: pa.Schema
    values: pa.Schema
    """What is kept of a row: its window, and what the result is made of."""
    gap: int
    lateness: int

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(ROWS, self.keys, self.values, TableKind.LIST),)

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
        time = np.concatenate([instants(found.values, START), instants(rows, START)[mine]])
        sessions = _Sessions.of(owner, time, self.gap)
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
            sessions = _Sessions.of(owner, instants(rows, START)[groups.order], self.gap)
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
    """Rows put in the order of their owners and times, and cut where a session ends."""

    order: Positions
    begins: Positions
    owners: Positions
    starts: Instants
    ends: Instants

    @classmethod
    def of(cls, owner: Positions, time: Instants, gap: int) -> _Sessions:
        order = np.lexsort((time, owner))
        owner, time = owner[order], time[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (owner[1:] != owner[:-1]) | (time[1:] > time[:-1] + gap)
        begins = np.flatnonzero(first)
        lasts = np.append(begins[1:], len(order)) - 1
        return cls(order, begins, owner[begins], time[begins], time[lasts] + gap)

    @property
    def sizes(self) -> Positions:
        return np.diff(self.begins, append=len(self.order))

    def of_row(self, of_session: Mask) -> Mask:
        """What is true of a session, for each row in this order."""
        return np.repeat(of_session, self.sizes)


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
