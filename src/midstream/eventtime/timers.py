"""Timers: a function of the user's own that is called again for a key when the watermark has passed a time in its
state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.eventtime.instants import Instants, least
from midstream.state.keys import flatten, group_rows
from midstream.state.ranges import to_orderable
from midstream.state.tables import Groups, Hashes, KeyedResult, Snapshot, TableSpec, Times
from midstream.task.userfn import STATE, UserFunction

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class WithTimers:
    """The column `timer` of a key's state says when it is due. The function then gets its state without rows, and says
    what becomes of it."""

    inner: UserFunction
    timer: str

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return self.inner.tables

    @property
    def output(self) -> pa.Schema:
        return self.inner.output

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        dues: list[int | None] = []
        if times.firing and times.now is not None:
            hashes, keys, later = self._due(times.now, snapshot)
            groups = _with_keys(rows, groups, hashes, keys)
            dues.append(later)
        result = replace(self.inner, more=(_instant(times.now),)).run(rows, groups, snapshot)
        if STATE in result.deltas:
            dues.append(least(self._instants(result.deltas[STATE].values)))
        return replace(result, due=min((due for due in dues if due is not None), default=None))

    def _due(self, now: int, snapshot: Snapshot) -> tuple[Hashes, pa.Table, int | None]:
        """Keys whose time has come, and when the next one's does."""
        hashes, keys = [_NONE], [self.tables[0].keys.empty_table()]
        later: list[int] = []
        for of_piece, piece in snapshot.scan_hashed(STATE):
            set_ = ~np.asarray(pc.is_null(piece.column(self.timer)))
            at = np.asarray(pc.fill_null(to_orderable(piece.column(self.timer)), 0), np.int64)
            due = set_ & (at <= now)
            hashes.append(of_piece[due])
            keys.append(piece.select(self.tables[0].keys.names).filter(pa.array(due)))
            if (ahead := at[set_ & ~due]).size:
                later.append(int(ahead.min()))
        return np.concatenate(hashes), flatten(pa.concat_tables(keys)), min(later, default=None)

    def _instants(self, values: pa.Table) -> Instants:
        return np.asarray(to_orderable(values.column(self.timer).drop_null()), np.int64)


def _with_keys(rows: pa.Table, groups: Groups, hashes: Hashes, keys: pa.Table) -> Groups:
    """The groups of rows, and one without rows for each other key."""
    if not len(hashes):
        return groups
    of_row = np.empty(rows.num_rows, np.int64)
    of_row[groups.order] = np.repeat(groups.hashes, groups.sizes)
    mine = rows.select(keys.column_names).cast(keys.schema)
    together = group_rows(np.concatenate([of_row, hashes]), flatten(pa.concat_tables([mine, keys])))
    owner = np.repeat(np.arange(len(together)), together.sizes)
    real = together.order < rows.num_rows
    sizes = np.bincount(owner[real], minlength=len(together))
    return Groups(together.hashes, together.keys, together.order[real], np.cumsum(sizes) - sizes)


def _instant(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
