"""A store that fails for a moment while a change is under way beside the stream: the change goes on when it is back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from midstream.coordinator.modification import Phase
from midstream.engine import modify
from midstream.errors import StoreError
from midstream.state.directory import DirectoryStore
from tests.modify.live import Live
from tests.modify.test_apply import sums
from tests.modify.test_crash import TENFOLD


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets some writes to the journal fail that are made beside the stream."""
    monkeypatch.setattr(modify, "_AGAIN_SECONDS", 0.05)

    def fail(*times: int, written: bool) -> None:
        create, made = DirectoryStore.create, iter(range(1000))

        def create_or_fail(self: DirectoryStore, path: str, data: Any) -> bool:
            beside = threading.current_thread().name == "midstream-changes"
            if not (beside and path.startswith("journal/") and next(made) in times):
                return create(self, path, data)
            if written:
                create(self, path, data)
            raise StoreError.failed(self.url, "so it was told")

        monkeypatch.setattr(DirectoryStore, "create", create_or_fail)

    return fail


@pytest.mark.parametrize("written", [False, True], ids=["not written", "answer lost"])
@pytest.mark.parametrize("times", [(0, 1), (1,), (2, 4)], ids=["validated", "preparing", "waiting"])
def test_a_step_that_could_not_be_written_down(
    live: Live, failing: Callable[..., None], times: tuple[int, ...], written: bool
) -> None:
    live.start(sums(live), ("a", 1))
    failing(*times, written=written)
    assert live.submit(TENFOLD).phase is Phase.WAITING
    assert live.epoch(("a", 2)) == [{"k": "a", "n": 2, "s": 21}]
    live.run.stop()
    live.start(sums(live))
    assert live.run.modification(1).phase is Phase.APPLIED
    assert live.epoch(("a", 3)) == [{"k": "a", "n": 3, "s": 51}]


def test_a_refusal_that_could_not_be_written_down(live: Live, failing: Callable[..., None]) -> None:
    live.start(sums(live), ("a", 1))
    failing(0, written=False)
    assert live.submit(modify.Replace("clean", sql="SELECT nothing FROM input")).phase is Phase.REJECTED
    assert live.submit(TENFOLD).phase is Phase.WAITING
