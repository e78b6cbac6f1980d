"""One contender from an empty checkpoint to a verified measurement: fill, warm up, measure, compare."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from midstream.bench.contender import Contender
from midstream.bench.progress import Progress
from midstream.bench.report import Measurement
from midstream.bench.timing import EpochTiming, rows_per_second, wall_ms
from midstream.bench.verify import counts_are_right
from midstream.bench.window import Window, observe
from midstream.bench.workload import Workload
from midstream.bench.written import WrittenBytes
from midstream.quantiles import percentile

FILL_ROWS = 10_000_000
"""Rows of one epoch of the fill at most, what a task of each contender takes without spilling much."""


@dataclass(frozen=True)
class Trial:
    workload: Workload
    window: Window
    fill_epochs: int = 0


def default_fill_epochs(workload: Workload) -> int:
    """Enough to give every key a first row; none when the warm-up does that anyway."""
    if workload.keys <= 2 * workload.rows_per_epoch:
        return 0
    return math.ceil(workload.keys / FILL_ROWS)


def run_trial(
    spark: SparkSession, contender: Contender, trial: Trial, directory: Path, progress: Progress
) -> Measurement:
    fill_seconds = fill(spark, contender, trial, directory, progress)
    progress.phase(f"{contender.name}: measuring")
    size = trial.workload.rows_per_epoch
    running = contender.start(spark, trial.workload, directory, rows_per_epoch=size, once=False)
    written = WrittenBytes(directory / "checkpoint")
    try:
        epochs = observe(
            running.progress,
            trial.window,
            failure=running.failure,
            progress=progress,
            on_start=written.start,
            on_poll=written.look,
        )
        checkpoint_bytes = written.total() / len(epochs)
        state = running.state_size()
    finally:
        running.stop()
    return replace(
        measurement(trial.workload, [epochs]),
        state_rows=state.rows if state else None,
        state_bytes=state.bytes if state else None,
        checkpoint_bytes_per_epoch=checkpoint_bytes,
        fill_seconds=fill_seconds,
        correct=counts_are_right(spark, trial.workload, running, directory, progress),
    )


def fill(spark: SparkSession, contender: Contender, trial: Trial, directory: Path, progress: Progress) -> float | None:
    """Give every key its first row in a few large epochs; the seconds that took."""
    if not trial.fill_epochs:
        return None
    started = time.monotonic()
    rows = math.ceil(trial.workload.keys / trial.fill_epochs)
    for epoch in range(trial.fill_epochs):
        progress.phase(f"{contender.name}: filling {trial.workload.keys:,} keys ({epoch + 1}/{trial.fill_epochs})")
        running = contender.start(spark, trial.workload, directory, rows_per_epoch=rows, once=True)
        running.wait()
    return time.monotonic() - started


@dataclass(frozen=True)
class FinalState:
    state_rows: int | None
    state_bytes: int | None
    correct: bool


def one_more_epoch(
    spark: SparkSession, contender: Contender, workload: Workload, directory: Path, progress: Progress
) -> FinalState:
    """Go on from a checkpoint for one epoch, and look at the state that leaves."""
    running = contender.start(spark, workload, directory, rows_per_epoch=workload.rows_per_epoch, once=True)
    running.wait()
    correct = counts_are_right(spark, workload, running, directory, progress)
    state = running.state_size()
    return FinalState(state.rows if state else None, state.bytes if state else None, correct)


def measurement(workload: Workload, rounds: Sequence[Sequence[EpochTiming]]) -> Measurement:
    """The figures of epochs measured in one or more rounds, each of consecutive epochs."""
    durations = [epoch.duration_ms for epochs in rounds for epoch in epochs]
    between = [gap for epochs in rounds for gap in wall_ms(epochs)]
    return Measurement(
        keys=workload.keys,
        rows_per_epoch=workload.rows_per_epoch,
        epochs=len(durations),
        rows_per_second=rows_per_second(rounds),
        epoch_p50_ms=percentile(durations, 50),
        epoch_p99_ms=percentile(durations, 99),
        wall_p50_ms=percentile(between, 50) if between else None,
    )
