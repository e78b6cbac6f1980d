"""Epoch timings as Spark itself reports them: one instrument for midstream and for native queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class EpochTiming:
    """One micro-batch: `started` in seconds since 1970, `end_offset` counts the rows of the source so far."""

    epoch: int
    rows: int
    started: float
    duration_ms: float
    end_offset: int


@dataclass(frozen=True)
class StateSize:
    rows: int
    bytes: int


class QueryProgress:
    """The epochs of a running query, read as they appear.

    `StreamingQuery.recentProgress` makes dozens of calls into the JVM for each epoch there ever was;
    polled, that would slow down what it measures. So we fetch the JSON of new epochs only.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._read = 0
        self.last: dict[str, Any] | None = None

    def poll(self) -> list[EpochTiming]:
        """The epochs that ended since the last call."""
        recent = self._query._jsq.recentProgress()
        count = len(recent)
        found = []
        for index in range(self._read, count):
            progress = json.loads(recent[index].json())
            timing = epoch_timing(progress)
            if timing.rows:
                found.append(timing)
                self.last = progress
        self._read = count
        return found

    def rows_until(self, epoch: int, rows_per_epoch: int) -> int:
        """Rows of the source up to `epoch`, the last one that was committed.

        Spark's progress may end one epoch before midstream's manifests, when a stop came between the two.
        """
        self.poll()
        if self.last is None:
            return 0
        last = epoch_timing(self.last)
        return last.end_offset + (epoch - last.epoch) * rows_per_epoch

    def state_size(self) -> StateSize | None:
        """The state of the native stateful operator, in memory and (RocksDB) in sorted files."""
        if self.last is None or not self.last["stateOperators"]:
            return None
        operator = self.last["stateOperators"][0]
        files = operator["customMetrics"].get("rocksdbSstFileSize", 0)
        return StateSize(operator["numRowsTotal"], operator["memoryUsedBytes"] + files)


def epoch_timing(progress: dict[str, Any]) -> EpochTiming:
    """Rows are counted by offsets: `numInputRows` counts a row as often as the batch was evaluated."""
    source = progress["sources"][0]
    start, end = source["startOffset"], source["endOffset"]
    end_offset = end["offset"] if end else 0
    return EpochTiming(
        epoch=progress["batchId"],
        rows=end_offset - (start["offset"] if start else 0),
        started=datetime.fromisoformat(progress["timestamp"]).timestamp(),
        duration_ms=progress["durationMs"].get("triggerExecution", 0),
        end_offset=end_offset,
    )


def rows_per_second(rounds: Sequence[Sequence[EpochTiming]]) -> float:
    """Rows by the wall clock, in each round from the start of its first epoch to the end of its last."""
    rows = sum(epoch.rows for epochs in rounds for epoch in epochs)
    seconds = sum(epochs[-1].started + epochs[-1].duration_ms / 1000 - epochs[0].started for epochs in rounds)
    return rows / max(seconds, 0.001)


def wall_ms(epochs: Sequence[EpochTiming]) -> list[float]:
    """From the start of each epoch to the start of the next."""
    return [
        (after.started - before.started) * 1000 for before, after in pairwise(epochs) if after.epoch == before.epoch + 1
    ]
