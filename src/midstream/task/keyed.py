"""The state task: one partition of a keyed step in one epoch, run by `mapInArrow` on an executor.

It reads the immutable state of the epoch before and writes new immutable files under names no other attempt uses, so
retries, speculation and lost executors are harmless: the driver picks one report a partition.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.errors import MidstreamError
from midstream.state.cache import process_cache
from midstream.state.hashspace import HASH_END, HashRange, number_of
from midstream.state.heat import bin_counts, key_counts
from midstream.state.keys import flatten, group_rows
from midstream.state.manifest import TableState
from midstream.state.precedence import meeting_point, working
from midstream.state.reader import Fetch, PartitionSnapshot
from midstream.state.segment import EncodedSegment, encode_segment
from midstream.state.store import Store
from midstream.state.tables import (
    Groups,
    JoiningFunction,
    KeyedFunction,
    KeyedResult,
    TableDelta,
    TableSpec,
    TimedFunction,
    Times,
)
from midstream.task.ahead import Ahead
from midstream.task.report import TableWrite, TaskFailure, TaskReport, Told
from midstream.task.staging import StageTarget
from midstream.task.worker import begin

HASH_COLUMN = "__midstream_hash"
ROWS_COLUMN = "__rows"
WAKE_COLUMN = "__midstream_wake"
"""Whether a row only tells a task which partition it is."""

OUTPUT_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class KeyedTask:
    """Everything a state task needs, sent with the task: small, picklable, free of Spark."""

    run: str
    step: str
    epoch: int
    store: Store
    function: KeyedFunction | TimedFunction | JoiningFunction
    input: pa.Schema
    keys: tuple[str, ...]
    ranges: tuple[HashRange, ...]
    tables: Mapping[str, TableState]
    stage: tuple[StageTarget, ...]
    emit: bool
    complete: bool
    send: Callable[[Told], None]
    fetch: Fetch = Fetch.NOTHING
    """What of the partition's state is to be here before the first row is looked at."""
    trial: bool = False
    """Whether a failure is told instead of raised."""
    times: Times | None = None
    """Event time, for a function that goes by it."""
    woken: bool = False
    """Whether each partition gets a row that is none of the stream, and works without others too."""
    ahead: Ahead | None = None
    """What a commit is about to name, to be brought once this task is done."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        try:
            yield from self._run(batches)
        except MidstreamError as error:
            if not self.trial:
                raise
            self.send(TaskFailure(self.run, self.step, error))

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = self._collect(batches)
        if not rows.num_rows and not self.works_without_rows:
            self._report_no_rows()
            return
        partition = self._partition(rows)
        if self.woken:
            awake = np.asarray(rows.column(WAKE_COLUMN))
            rows = flatten(rows.filter(pa.array(~awake)).drop_columns([WAKE_COLUMN]))
        started = time.perf_counter()
        fetched = process_cache().fetched_bytes
        attempt = uuid.uuid4().hex
        with working(meeting_point(self.store)):
            groups = self._groups(rows, partition)
            snapshot = PartitionSnapshot(self.store, self.tables, self.ranges[partition])
            snapshot.fetch(self.fetch, groups.hashes)
            result = self._result(rows, groups, snapshot)
            writes = {name: self._write(name, delta, partition, attempt) for name, delta in result.deltas.items()}
            staged = {
                target.sink: file
                for target in self.stage
                if (file := target.stage(self.epoch, partition, result.output.to_batches()))
            }
        self.send(
            TaskReport(
                run=self.run,
                step=self.step,
                partition=partition,
                attempt=attempt,
                rows=_raw_rows(rows),
                arrived=rows.num_rows,
                groups=len(groups),
                output_rows=result.output.num_rows,
                milliseconds=(time.perf_counter() - started) * 1000,
                fetched_bytes=process_cache().fetched_bytes - fetched,
                tables=writes,
                staged=staged,
                heat=bin_counts(groups),
                hot=key_counts(groups),
                touched=result.touched,
                splits=result.splits,
                late=_raw_rows(rows.take(result.late)) if result.late is not None else 0,
                due=result.due,
            )
        )
        if self.emit:
            yield from result.output.to_batches(max_chunksize=OUTPUT_BATCH_ROWS)
        if self.ahead is not None:
            self.ahead.bring(self.store, self.tables, self.ranges[partition])

    @property
    def works_without_rows(self) -> bool:
        return self.complete or self.woken or (self.times is not None and self.times.firing)

    def _result(self, rows: pa.Table, groups: Groups, snapshot: PartitionSnapshot) -> KeyedResult:
        if isinstance(self.function, JoiningFunction):
            return self.function.run_within(snapshot.partition, snapshot)
        if isinstance(self.function, TimedFunction):
            assert self.times is not None
            return self.function.run_at(self.times, rows, groups, snapshot)
        return self.function.run(rows, groups, snapshot)

    def _collect(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return self.input.empty_table()
        rows = pa.Table.from_batches(held)
        # Spark marks timestamps with the session's time zone; state is kept in UTC, the same instants.
        return flatten(rows if rows.schema.equals(self.input) else rows.cast(self.input))

    def _partition(self, rows: pa.Table) -> int:
        """Which partition of its step this is: told by its rows, for Spark counts partitions of the whole stage, and
        steps run together share one. One that has work without rows too runs alone."""
        if rows.num_rows:
            return number_of(rows.column(HASH_COLUMN)[0].as_py(), self.ranges)
        return _spark_partition()

    def _report_no_rows(self) -> None:
        """Tell that this partition had nothing to do: the driver counts reports to know that none was left out."""
        nobody = -1 - _spark_partition()
        self.send(TaskReport(self.run, self.step, nobody, uuid.uuid4().hex, 0, 0, 0, 0, 0.0))

    def _groups(self, rows: pa.Table, partition: int) -> Groups:
        hashes = rows.column(HASH_COLUMN).to_numpy()
        groups = group_rows(hashes, rows.select(list(self.keys)))
        if len(groups):
            mine = self.ranges[partition]
            if groups.hashes[0] < mine.start or (mine.end != HASH_END and groups.hashes[-1] >= mine.end):
                raise RuntimeError(f"rows of another partition reached partition {partition} of {self.step}")
        return groups

    def _write(self, table: str, delta: TableDelta, partition: int, attempt: str) -> TableWrite:
        if not len(delta.hashes):
            return TableWrite(None, delta.added, delta.removed, delta.delete_below)
        encoded = encoded_delta(self.tables[table].spec, delta)
        path = f"segments/{self.step}/{table}/{self.epoch:012d}-{partition:05d}-{attempt}.seg"
        process_cache().write_through(self.store, path, encoded.data)
        info = encoded.info(path, self.epoch, self.epoch, level=0, schema=len(self.tables[table].conversions))
        return TableWrite(info, delta.added, delta.removed, delta.delete_below)


def encoded_delta(spec: TableSpec, delta: TableDelta) -> EncodedSegment:
    """The rows of a delta as they are written."""
    columns = [*delta.keys.columns, *(delta.values.column(name) for name in spec.values.names)]
    stored = pa.Table.from_arrays(columns, names=spec.schema.names)
    return encode_segment(spec, delta.hashes, stored, delta.deleted)


def _spark_partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _raw_rows(rows: pa.Table) -> int:
    """How many rows of the stream these stand for: partly aggregated rows carry their count."""
    if ROWS_COLUMN in rows.column_names:
        return int(np.sum(rows.column(ROWS_COLUMN).to_numpy()))
    return int(rows.num_rows)
