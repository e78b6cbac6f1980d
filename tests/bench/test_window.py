from collections.abc import Iterable

import pytest
from rich.console import Console

from midstream.bench import window as window_module
from midstream.bench.progress import Progress
from midstream.bench.timing import EpochTiming
from midstream.bench.window import Window, observe


class Scripted:
    """Epochs that end a given number at a time, poll by poll."""

    def __init__(self, ended: Iterable[int]) -> None:
        self._ended = iter(ended)
        self._next = 0

    def poll(self) -> list[EpochTiming]:
        count = next(self._ended)
        found = [EpochTiming(n, 10, float(n), 1000.0, (n + 1) * 10) for n in range(self._next, self._next + count)]
        self._next += count
        return found


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "POLL_SECONDS", 0.0)


def measured(ended: list[int], window: Window, failure: BaseException | None = None) -> list[int]:
    progress = Progress(Console(quiet=True))
    epochs = observe(Scripted(ended), window, failure=lambda: failure, progress=progress)  # type: ignore[arg-type]
    return [epoch.epoch for epoch in epochs]


def test_epochs_of_the_warm_up_do_not_count() -> None:
    assert measured([1, 1, 0, 1, 1, 1], Window(2, 0, 3, 0)) == [2, 3, 4]


def test_measuring_goes_on_until_there_are_enough_epochs() -> None:
    assert measured([0, 0, 0, 2, 0, 3], Window(0, 0, 4, 0)) == [0, 1, 2, 3, 4]


def test_a_failed_query_ends_the_wait_with_its_error() -> None:
    with pytest.raises(RuntimeError, match="no such table"):
        measured([0], Window(1, 0, 1, 0), failure=RuntimeError("no such table"))
