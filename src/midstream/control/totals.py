"""Sums over all epochs of a run, for counters that must not go down."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime

from midstream.engine.epochs import EpochReport

BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds of an epoch."""


@dataclass
class StepTotals:
    rows: int = 0
    output_rows: int = 0
    late_rows: int = 0
    fetched_bytes: int = 0
    slowest_seconds: float = 0.0
    watermark: datetime | None = None


@dataclass
class Totals:
    epochs: int = 0
    rows: int = 0
    written_bytes: int = 0
    seconds: float = 0.0
    by_duration: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    steps: dict[str, StepTotals] = field(default_factory=dict)

    def add(self, report: EpochReport) -> None:
        seconds = report.duration_ms / 1000
        self.epochs += 1
        self.rows += report.rows
        self.written_bytes += report.written_bytes
        self.seconds += seconds
        self.by_duration[bisect_left(BUCKETS, seconds)] += 1
        for id_, step in report.steps.items():
            known = self.steps.get(id_)
            if known is None:
                # A new dict, not a new entry: it is read by other threads meanwhile.
                known = StepTotals()
                self.steps = {**self.steps, id_: known}
            known.rows += step.rows
            known.output_rows += step.output_rows
            known.late_rows += step.late_rows
            known.fetched_bytes += step.fetched_bytes
            known.slowest_seconds += step.slowest_ms / 1000
            known.watermark = step.watermark
