"""Warm-up and measurement of a running query: which epochs count."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from midstream.bench.progress import Progress
from midstream.bench.timing import EpochTiming, QueryProgress, rows_per_second

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Window:
    """Epochs count once both `warmup_…` bounds are passed, and until both bounds of measuring are."""

    warmup_epochs: int
    warmup_seconds: float
    epochs: int
    seconds: float


def observe(
    progress_of: QueryProgress,
    window: Window,
    *,
    failure: Callable[[], BaseException | None],
    progress: Progress,
    on_start: Callable[[], None] = lambda: None,
    on_poll: Callable[[], None] = lambda: None,
) -> list[EpochTiming]:
    """Wait through the warm-up, then collect epochs. Raises what the query failed with."""
    _warm_up(progress_of, window, failure, progress)
    on_start()
    measured: list[EpochTiming] = []
    started = time.monotonic()
    while len(measured) < window.epochs or time.monotonic() - started < window.seconds:
        measured += _poll(progress_of, failure)
        on_poll()
        if measured:
            rate = rows_per_second([measured])
            progress.note(f"{len(measured)} epochs, last {measured[-1].duration_ms:.0f} ms, {rate:,.0f} rows/s")
    return measured


def _warm_up(
    progress_of: QueryProgress,
    window: Window,
    failure: Callable[[], BaseException | None],
    progress: Progress,
) -> None:
    seen = 0
    started = time.monotonic()
    while seen < window.warmup_epochs or time.monotonic() - started < window.warmup_seconds:
        epochs = _poll(progress_of, failure)
        seen += len(epochs)
        if epochs:
            progress.note(f"warming up, epoch {epochs[-1].epoch}, {epochs[-1].duration_ms:.0f} ms")


def _poll(progress_of: QueryProgress, failure: Callable[[], BaseException | None]) -> list[EpochTiming]:
    time.sleep(POLL_SECONDS)
    error = failure()
    if error is not None:
        raise error
    return progress_of.poll()
