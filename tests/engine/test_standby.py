"""Whether those that should follow do: told by what they write to the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.engine import standby
from midstream.engine.standby import Standby
from midstream.engine.warming import SILENCE_SECONDS
from midstream.state.store import Store, open_store
from midstream.state.warmup import WarmupJob

JOBS = ("1", "2")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "chk"))


@pytest.fixture
def standbys(store: Store) -> Standby:
    jobs = tuple(WarmupJob("id", executor, store, {}, {}, follow=True) for executor in JOBS)
    return Standby(spark=None, placer=None, store=store, _jobs=jobs)  # type: ignore[arg-type]


def test_one_that_tells_nothing_any_more_is_noticed(standbys: Standby, store: Store) -> None:
    first, second = standbys._jobs
    for at in range(0, 200, 20):
        store.put(first.path, b"{}" * at)  # a directory tells times by the nanosecond
        if at < 100:
            store.put(second.path, b"{}" * at)
        silent = standbys._silent(lambda at=at: 1000.0 + at)
        assert silent == ([second.executor] if at - 80 > SILENCE_SECONDS else [])


def test_one_that_never_told_anything_is_noticed(standbys: Standby) -> None:
    assert standbys._silent(lambda: 1000.0) == []
    assert standbys._silent(lambda: 1001.0 + SILENCE_SECONDS) == list(JOBS)


def test_it_is_not_looked_at_after_every_epoch(standbys: Standby, store: Store) -> None:
    standbys._silent(lambda: 1000.0)
    store.put(standbys._jobs[0].path, b"{}")
    standbys._silent(lambda: 1000.0 + standby._LOOK_SECONDS / 2)
    assert standbys._heard[standbys._jobs[0].path] == (None, 1000.0)


def test_nobody_follows_and_nobody_is_silent(standbys: Standby) -> None:
    standbys.stop()
    assert standbys._silent(lambda: 1e9) == []
