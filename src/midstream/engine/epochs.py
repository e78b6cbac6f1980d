"""What is told of an epoch once it is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class StepReport:
    """One step in one epoch: rows that went in (before any aggregation), distinct keys, rows that came out.

    `slowest_ms` and `median_ms` are of its instances, by the time each worked on the rows it was given.
    """

    rows: int
    keys: int
    output_rows: int
    slowest_ms: float
    median_ms: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    fetched_bytes: int = 0
    """What tasks had to bring from a remote store first."""
    late_rows: int = 0
    """Rows that came after their window was closed, and were left out."""
    watermark: datetime | None = None
    """How far event time has come, for a step that goes by it."""


@dataclass(frozen=True)
class EpochReport:
    """One committed epoch. `rows` counts what entered the pipeline's first keyed steps and direct sinks."""

    epoch: int
    started_at: datetime
    duration_ms: float
    rows: int
    state_rows: int
    state_bytes: int
    written_bytes: int
    plan: int
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, StepReport] = field(default_factory=dict)
