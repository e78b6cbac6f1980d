"""A running pipeline under the control of a test: one file is one epoch, and changes are applied between two."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.coordinator.modification import Modification, Phase
from midstream.engine.run import Run
from tests.engine.harness import Inbox

PREPARING = (Phase.PROPOSED, Phase.VALIDATED, Phase.PREPARING)


class Live:
    """Numbers come in as `k string, v bigint`; results are kept in memory."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.events = Inbox(directory / "in", "k string, v bigint")
        self.checkpoint = str(directory / "chk")
        self.sink = ms.sinks.memory()
        self.run: Run

    def start(self, flow: ms.Pipeline, *rows: tuple[Any, ...], **options: Any) -> Run:
        """Start, with a first epoch when rows are given."""
        self.run = flow.start(self.spark, self.checkpoint, **options)
        if rows:
            self.epoch(*rows)
        return self.run

    def source(self) -> ms.Stream:
        return self.events.source()

    def epoch(self, *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
        """One more epoch; what it gave."""
        self.events.add(*rows)
        self.run.process_available()
        return self.output(self.run.last_epoch)

    def output(self, epoch: int, sink: Any = None) -> list[dict[str, Any]]:
        table = (sink or self.sink).epochs.get(epoch)
        rows: list[dict[str, Any]] = table.to_pylist() if table is not None else []
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])

    def submit(self, change: Any, **options: Any) -> Modification:
        """Hand a change in and wait until it waits for the next epoch, or has ended."""
        return self.settled(self.run.apply(change, wait=False, **options))

    def undo(self, **options: Any) -> Modification:
        return self.settled(self.run.undo(wait=False, **options))

    def settled(self, modification: Modification) -> Modification:
        deadline = time.monotonic() + 120
        while self.run.modification(modification.id).phase in PREPARING:
            assert time.monotonic() < deadline, self.run.history()
            time.sleep(0.02)
        return self.run.modification(modification.id)

    def handed_over(self) -> None:
        """Wait until Spark's query is the one the waiting change needs: rows that come now are its."""
        deadline = time.monotonic() + 60
        while self.run._feed is not self.run._modifier.wanted().feed or not self.run.query.isActive:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def change(self, change: Any, *rows: tuple[Any, ...], **options: Any) -> list[dict[str, Any]]:
        """Apply a change with the next epoch; what that gave."""
        submitted = self.submit(change, **options)
        assert submitted.phase is Phase.WAITING, submitted
        self.handed_over()
        output = self.epoch(*rows)
        assert self.run.modification(submitted.id).phase is Phase.APPLIED, self.run.history()
        return output
