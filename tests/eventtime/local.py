"""A keyed step without Spark: its state task is run directly, on state in a directory, one partition for all keys."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import xxhash

from midstream.engine.execute import with_writes
from midstream.eventtime.watermarks import Mark, advanced, reached
from midstream.state.hashspace import even_ranges
from midstream.state.manifest import SourceTime, StepState, TableState
from midstream.state.store import open_store
from midstream.state.tables import KeyedFunction, TimedFunction, Times
from midstream.task.keyed import HASH_COLUMN, KeyedTask
from midstream.task.report import TaskReport, Told


class LocalStep:
    """Runs epochs as `engine/execute.py` does: a round with the rows, and one without when something is due."""

    def __init__(self, function: KeyedFunction | TimedFunction, keys: tuple[str, ...], input: pa.Schema) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._store = open_store(self._directory.name)
        self._function, self._keys = function, keys
        self._input = pa.schema([*input, pa.field(HASH_COLUMN, pa.int64())])
        self.state = StepState(even_ranges(1), {spec.name: TableState(spec) for spec in function.tables})
        self.times: dict[str, SourceTime] = {}
        self.late = 0
        self._epoch = 0

    def epoch(self, rows: pa.Table, latest: Mapping[str, int | None], delay: int = 0) -> list[dict[str, Any]]:
        """What an epoch with rows gives, in which the sources came up to some times."""
        before = self.state.watermark
        given = self._round(rows, Times(before, before, firing=False))
        self.times = advanced(self.times, {source: Mark(delay) for source in latest}, latest, 0.0)
        now = reached(before, self.times.values())
        if now is not None and self.state.due is not None and self.state.due <= now:
            self.state = replace(self.state, due=None)
            given += self._round(self._input.empty_table().select(rows.column_names), Times(before, now, firing=True))
        self.state = replace(self.state, watermark=now)
        self._epoch += 1
        return given

    def _round(self, rows: pa.Table, times: Times) -> list[dict[str, Any]]:
        told: list[Told] = []
        hashes = [self._hash(row) for row in rows.select(list(self._keys)).to_pylist()]
        task = KeyedTask(
            run="run",
            step="step",
            epoch=self._epoch,
            store=self._store,
            function=self._function,
            input=self._input,
            keys=self._keys,
            ranges=self.state.ranges,
            tables=self.state.tables,
            stage=(),
            emit=True,
            complete=False,
            send=told.append,
            times=times,
        )
        hashed = rows.append_column(HASH_COLUMN, pa.array(hashes, pa.int64())).cast(self._input)
        given = [row for batch in task(iter(hashed.to_batches())) for row in batch.to_pylist()]
        reports = [report for report in told if isinstance(report, TaskReport)]
        self.late += sum(report.late for report in reports)
        dues = [self.state.due, *(report.due for report in reports)]
        self.state = with_writes(self.state, reports, self._epoch)
        self.state = replace(self.state, due=min((due for due in dues if due is not None), default=None))
        return given

    def _hash(self, key: dict[str, Any]) -> int:
        return xxhash.xxh3_64_intdigest(repr(list(key.values())).encode()) - 2**63

    def close(self) -> None:
        self._directory.cleanup()
