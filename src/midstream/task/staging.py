"""Staging rows for a sink from inside a task: beside a state task, or as a task of its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from midstream.sinks.base import StageOptions
from midstream.state.manifest import StagedFile
from midstream.state.store import Store
from midstream.task.report import TaskReport
from midstream.task.stage import stage, stage_name
from midstream.task.worker import begin


@dataclass(frozen=True)
class StageTarget:
    """Where and how the rows for one sink are staged."""

    sink: str
    store: Store
    schema: pa.Schema
    options: StageOptions

    def stage(self, epoch: int, partition: int, batches: Iterable[pa.RecordBatch]) -> StagedFile | None:
        return stage(self.store, self.schema, stage_name(epoch, partition), batches, self.options)


@dataclass(frozen=True)
class StageTask:
    """A task that stages one partition of a DataFrame for a sink and sends no rows on."""

    run: str
    epoch: int
    target: StageTarget
    send: Callable[[TaskReport], None]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        begin()
        started = time.perf_counter()
        counter = _Counted(batches)
        staged = self.target.stage(self.epoch, partition, counter)
        self.send(
            TaskReport(
                run=self.run,
                step=self.target.sink,
                partition=partition,
                attempt=uuid.uuid4().hex,
                rows=counter.rows,
                arrived=counter.rows,
                groups=0,
                output_rows=counter.rows,
                milliseconds=(time.perf_counter() - started) * 1000,
                staged={self.target.sink: staged} if staged else {},
            )
        )
        return iter(())


class _Counted:
    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch
