"""Aggregates by key and window: an aggregate whose keys go when the watermark has passed them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from midstream.aggregates.function import MAIN, AggregateFunction
from midstream.aggregates.retractions import changes, with_change
from midstream.eventtime.instants import instants, least
from midstream.eventtime.late import NEVER, without_late
from midstream.eventtime.windows import END, Emit
from midstream.state.tables import Groups, KeyedResult, Snapshot, TableDelta, TableSpec, Times, nothing_of


@dataclass(frozen=True)
class WindowedAggregate:
    """The windows of a step are part of its key, so their state is that of any aggregate.

    A window is *over* when the watermark has reached its end: it then gives its result. It is *closed*, and goes, when
    the lateness is over too; until then rows that come late change what it has given.
    """

    aggregate: AggregateFunction
    lateness: int
    emit: Emit

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return self.aggregate.tables

    @property
    def output(self) -> pa.Schema:
        retracts = self.emit is Emit.RETRACTIONS
        return with_change(self.aggregate.output) if retracts else self.aggregate.output

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        before = NEVER if times.before is None else times.before
        ends = instants(groups.keys, END)
        late, rows, groups = without_late(ends <= before - self.lateness, rows, groups)
        ends = instants(groups.keys, END)
        columns, deltas = self.aggregate.update(rows, groups, snapshot)
        results = self.aggregate.finished(groups.keys, columns)
        if self.emit is Emit.RETRACTIONS:
            output = [changes(self.aggregate, groups, snapshot, results)]
        else:
            output = [results if self.emit is Emit.CHANGED else results.filter(pa.array(ends <= before))]
        due = least(ends[ends > before])
        if times.firing and times.now is not None:
            fired, due = self._fire(before, times.now, snapshot, deltas)
            output += fired
        return KeyedResult(pa.concat_tables(output), deltas, late, due)

    def _fire(
        self, before: int, now: int, snapshot: Snapshot, deltas: dict[str, TableDelta]
    ) -> tuple[list[pa.Table], int | None]:
        """The results of windows that are over now and were not before, and the end of the next. What is closed goes,
        which is added to the deltas."""
        bound, dues, gone = now - self.lateness + 1, [], 0

        def over(rows: pa.Table) -> pa.Table:
            nonlocal gone
            ends = instants(rows, END)
            dues.append(least(ends[ends > now]))
            gone += int(np.count_nonzero(ends < bound))
            return rows.filter(pa.array((ends > before) & (ends <= now)))

        results = list(self.aggregate.everything(snapshot, deltas, over))
        counts = {MAIN: gone}
        for table in self.tables:
            if table.name != MAIN:
                pieces = snapshot.scan(table.name, deltas.get(table.name))
                counts[table.name] = sum(int(np.count_nonzero(instants(piece, END) < bound)) for piece in pieces)
        for table in self.tables:
            if counts[table.name]:
                delta = deltas.get(table.name) or nothing_of(table)
                removed = delta.removed + counts[table.name]
                deltas[table.name] = replace(delta, removed=removed, delete_below=bound)
        return results if self.emit is Emit.CLOSED else [], min((due for due in dues if due is not None), default=None)
