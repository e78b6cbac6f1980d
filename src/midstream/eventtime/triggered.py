"""Aggregates of all time whose results are given when the watermark has passed certain moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.aggregates.function import AggregateFunction
from midstream.eventtime.late import NEVER
from midstream.state.matching import match_groups
from midstream.state.tables import Groups, KeyedResult, Snapshot, TableDelta, TableSpec, Times

PENDING = "pending"
_SINCE = pa.field("since", pa.int64())


@dataclass(frozen=True)
class TriggeredAggregate:
    """Remembers which keys have changed since results were given last."""

    aggregate: AggregateFunction
    every: int

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (*self.aggregate.tables, TableSpec(PENDING, self.aggregate.keys, pa.schema([_SINCE])))

    @property
    def output(self) -> pa.Schema:
        return self.aggregate.output

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        before = NEVER if times.before is None else times.before
        _, deltas = self.aggregate.update(rows, groups, snapshot)
        if len(groups):
            deltas[PENDING] = self._noted(before, groups, snapshot)
        if times.firing and times.now is not None:
            return KeyedResult(self._fire(deltas, snapshot), deltas)
        return KeyedResult(self.output.empty_table(), deltas, due=self._next(before) if len(groups) else None)

    def _next(self, moment: int) -> int:
        return (moment // self.every + 1) * self.every

    def _noted(self, now: int, groups: Groups, snapshot: Snapshot) -> TableDelta:
        known = snapshot.lookup(PENDING, groups.hashes, groups.keys).found
        since = pa.table([pa.array(np.full(len(groups), now))], schema=pa.schema([_SINCE]))
        return TableDelta(groups.hashes, groups.keys, since, added=len(groups) - int(np.count_nonzero(known)))

    def _fire(self, deltas: dict[str, TableDelta], snapshot: Snapshot) -> pa.Table:
        pieces = list(snapshot.scan_hashed(PENDING, deltas.get(PENDING)))
        names = self.aggregate.keys.names
        hashes = np.concatenate([np.empty(0, np.int64), *(of_piece for of_piece, _ in pieces)])
        keys = pa.concat_tables(
            [self.aggregate.keys.empty_table(), *(piece.select(names).cast(self.aggregate.keys) for _, piece in pieces)]
        ).combine_chunks()

        def pending(rows: pa.Table) -> pa.Table:
            return rows.filter(pa.array(match_groups(keys, rows.select(names)) >= 0))

        results = pa.concat_tables(self.aggregate.everything(snapshot, deltas, pending))
        added = deltas[PENDING].added if PENDING in deltas else 0
        nulls = pa.table([pa.nulls(len(hashes), _SINCE.type)], schema=pa.schema([_SINCE]))
        deltas[PENDING] = TableDelta(hashes, keys, nulls, np.ones(len(hashes), np.bool_), added, len(hashes))
        return results
