"""Contenders measured turn by turn, so that a machine that grows slower or faster does so for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from midstream.bench.contender import Running
from midstream.bench.progress import Progress
from midstream.bench.timing import EpochTiming
from midstream.bench.window import Window, observe


def take_turns(
    starts: Mapping[str, Callable[[], Running]],
    rounds: int,
    *,
    first: Window,
    later: Window,
    progress: Progress,
) -> dict[str, list[list[EpochTiming]]]:
    """Start, warm up, measure and stop each contender in each round; its epochs by round.

    Queries are started anew each round, on the checkpoint they left: there is no pausing them between epochs.
    The JVM and its Python workers live on, so a few epochs of warm-up are enough in later rounds.
    """
    measured: dict[str, list[list[EpochTiming]]] = {name: [] for name in starts}
    for number in range(rounds):
        for name, start in starts.items():
            progress.phase(f"{name}: round {number + 1} of {rounds}")
            running = start()
            try:
                window = later if number else first
                epochs = observe(running.progress, window, failure=running.failure, progress=progress)
            finally:
                running.stop()
            measured[name].append(epochs)
    return measured
