"""Rows without their repetitions: of each key only the first row, for as long as its repetitions may come."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from midstream.eventtime.instants import instants
from midstream.eventtime.late import NEVER, without_rows
from midstream.state.tables import Groups, KeyedResult, Snapshot, TableDelta, TableSpec, Times, nothing_of

SEEN = "seen"


@dataclass(frozen=True)
class Dedup:
    """Gives the earliest row of each key that was not seen before, and remembers its time. A key is forgotten when the
    watermark has passed its time: rows as old as that are late."""

    keys: pa.Schema
    output: pa.Schema
    time: str

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        kept = [] if self.time in self.keys.names else [self.output.field(self.time)]
        return (TableSpec(SEEN, self.keys, pa.schema(kept), range_column=self.time),)

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        before = NEVER if times.before is None else times.before
        late, rows, groups = without_rows(instants(rows, self.time) < before, rows, groups)
        times_of_rows = instants(rows, self.time)
        deltas: dict[str, TableDelta] = {}
        output, due = self.output.empty_table(), None
        if len(groups):
            known = snapshot.lookup(SEEN, groups.hashes, groups.keys)
            owners = np.repeat(np.arange(len(groups)), groups.sizes)
            earliest = groups.order[np.lexsort((times_of_rows[groups.order], owners))[groups.starts]]
            fresh = ~known.found
            first = rows.take(pa.array(earliest[fresh]))
            output = first.select(self.output.names).cast(self.output)
            if fresh.any():
                keys = groups.keys.filter(pa.array(fresh))
                values = output.select(self.tables[0].values.names)
                deltas[SEEN] = TableDelta(groups.hashes[fresh], keys, values, added=int(fresh.sum()))
                due = int(times_of_rows[earliest[fresh]].min()) + _SLACK
        if times.firing and times.now is not None:
            due = self._forget(times.now, deltas, snapshot)
        return KeyedResult(output, deltas, late, due)

    def _forget(self, now: int, deltas: dict[str, TableDelta], snapshot: Snapshot) -> int | None:
        """Forget keys whose repetitions would be late. Gives when to do so again."""
        pieces = [instants(piece, self.time) for piece in snapshot.scan(SEEN, deltas.get(SEEN))]
        seen = np.concatenate([np.empty(0, np.int64), *pieces])
        gone = int(np.count_nonzero(seen < now))
        if gone:
            delta = deltas.get(SEEN) or nothing_of(self.tables[0])
            deltas[SEEN] = replace(delta, removed=delta.removed + gone, delete_below=now)
        left = seen[seen >= now]
        return int(left.min()) + _SLACK if len(left) else None


_SLACK = 10_000_000
"""For how long a key may be of no use before the state is looked through for it."""
