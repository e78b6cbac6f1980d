"""Rows kept in the driver, for tests and notebooks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from midstream.sinks.base import SinkContext, StagedEpoch, StageOptions
from midstream.sinks.staging import in_checkpoint, read_table
from midstream.state.store import Store


def memory() -> MemorySink:
    """Keep the rows of all epochs in the driver's memory.

    >>> sink = memory()
    >>> sink.to_pylist()
    []

    Not durable: a new process starts empty and gets only the epochs from then on.
    """
    return MemorySink()


class MemorySink:
    def __init__(self) -> None:
        self._epochs: dict[int, pa.Table] = {}
        self._schema = pa.schema([])
        self._complete = False

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions()

    @property
    def epochs(self) -> dict[int, pa.Table]:
        """The rows of each epoch that had some, or of every epoch when the input is a complete result."""
        return dict(self._epochs)

    def to_table(self) -> pa.Table:
        """The rows of all epochs in order; when the input is a complete result, those of the newest epoch."""
        tables = [table for _, table in sorted(self._epochs.items())]
        if not tables:
            return self._schema.empty_table()
        return tables[-1] if self._complete else pa.concat_tables(tables, promote_options="default")

    def to_pylist(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.to_table().to_pylist()
        return rows

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        return in_checkpoint(checkpoint, sink_id)

    def describe(self) -> dict[str, str]:
        return {"kind": "memory", "target": "the driver's memory"}

    def prepare(self, context: SinkContext) -> None:
        self._schema = context.schema
        self._complete = context.complete

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        if staged.files or context.complete:
            self._epochs[staged.epoch] = read_table(context.staging, staged.files, context.schema)
