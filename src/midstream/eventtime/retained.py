"""Windows whose rows are all kept until they are over, for a function of the user's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from midstream.eventtime.finish import ROWS
from midstream.eventtime.instants import instants, least
from midstream.eventtime.late import NEVER, without_late
from midstream.eventtime.windows import END
from midstream.state.tables import (
    Groups,
    KeyedResult,
    Mask,
    Snapshot,
    TableDelta,
    TableKind,
    TableSpec,
    Times,
    nothing_of,
)
from midstream.task.windowfn import WindowFunction


@dataclass(frozen=True)
class RetainedWindows:
    """The function is called with the rows of windows when they are over, and again with all rows of one when rows of
    it come late; when the lateness is over too, its rows go."""

    function: WindowFunction
    keys: pa.Schema
    """Those of the step, and the window."""
    values: pa.Schema
    lateness: int

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(ROWS, self.keys, self.values, TableKind.LIST, END),)

    @property
    def output(self) -> pa.Schema:
        return self.function.output

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        before = NEVER if times.before is None else times.before
        closed = instants(groups.keys, END) <= before - self.lateness
        late, rows, groups = without_late(closed, rows, groups)
        ends = instants(groups.keys, END)
        deltas = {ROWS: self._appended(rows, groups)} if len(groups) else {}
        outputs = [self.function(self._again(ends <= before, deltas, groups, snapshot))]
        due = least(ends[ends > before])
        if times.firing and times.now is not None:
            over, due = self._fire(before, times.now, deltas, snapshot)
            outputs.append(self.function(over))
        return KeyedResult(pa.concat_tables(outputs), deltas, late, due)

    def _appended(self, rows: pa.Table, groups: Groups) -> TableDelta:
        owners = np.repeat(np.arange(len(groups)), groups.sizes)
        values = rows.take(pa.array(groups.order)).select(self.values.names).cast(self.values)
        keys = groups.keys.cast(self.keys).take(pa.array(owners))
        return TableDelta(groups.hashes[owners], keys, values, added=rows.num_rows)

    def _again(self, over: Mask, deltas: dict[str, TableDelta], groups: Groups, snapshot: Snapshot) -> pa.Table:
        """All rows of windows that have given results already, and have got more rows."""
        if not over.any():
            return self.tables[0].schema.empty_table()
        asked = np.flatnonzero(over)
        keys = groups.keys.cast(self.keys)
        old = snapshot.lookup_rows(ROWS, groups.hashes[asked], keys.take(pa.array(asked)))
        fresh = np.isin(np.repeat(np.arange(len(groups)), groups.sizes), asked)
        new = deltas[ROWS]
        return pa.concat_tables(
            [
                self._together(keys.take(pa.array(asked[old.owner])), old.values.cast(self.values)),
                self._together(new.keys.filter(pa.array(fresh)), new.values.filter(pa.array(fresh))),
            ]
        )

    def _together(self, keys: pa.Table, values: pa.Table) -> pa.Table:
        return pa.table([*keys.columns, *values.columns], schema=self.tables[0].schema)

    def _fire(
        self, before: int, now: int, deltas: dict[str, TableDelta], snapshot: Snapshot
    ) -> tuple[pa.Table, int | None]:
        """The rows of windows that are over now and were not before, and the end of the next. What is closed goes."""
        table = self.tables[0]
        bound, dues, gone = now - self.lateness + 1, list[int | None](), 0
        over = [table.schema.empty_table()]
        for piece in snapshot.scan(ROWS, deltas.get(ROWS)):
            ends = instants(piece, END)
            dues.append(least(ends[ends > now]))
            gone += int(np.count_nonzero(ends < bound))
            over.append(piece.filter(pa.array((ends > before) & (ends <= now))).cast(table.schema))
        if gone:
            delta = deltas.get(ROWS) or nothing_of(table)
            deltas[ROWS] = replace(delta, removed=delta.removed + gone, delete_below=bound)
        return pa.concat_tables(over), min((due for due in dues if due is not None), default=None)
