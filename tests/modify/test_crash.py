"""A driver that fails at any point of a change: the next one finishes it or drops it, and no row is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from midstream.engine import faults
from midstream.engine.changelog import ChangeLog
from midstream.engine.epoch import EpochRunner
from midstream.errors import MidstreamError
from tests.engine.harness import Inbox
from tests.modify.live import Live
from tests.modify.test_apply import sums
from tests.modify.test_sources import load, totals, union
from tests.servers import S3Server

TENFOLD = ms.Replace("clean", lambda df: df.withColumn("v", F.col("v") * 10))


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    for point in ("executed", "committed", "finalised"):
        faults.set_fault(point, None)


def slowed(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, seconds: float) -> None:
    at_once = getattr(owner, name)

    def slowly(*arguments: Any) -> Any:
        time.sleep(seconds)
        return at_once(*arguments)

    monkeypatch.setattr(owner, name, slowly)


def crash() -> None:
    raise OSError("the machine is gone")


@pytest.mark.parametrize("point", ["executed", "committed", "finalised"])
def test_a_driver_fails_in_the_epoch_that_applies_a_change(live: Live, point: str) -> None:
    live.start(sums(live), ("a", 1))
    assert live.submit(TENFOLD).phase is Phase.WAITING
    faults.set_fault(point, crash)
    live.events.add(("a", 2))
    with pytest.raises(MidstreamError, match="the machine is gone"):
        live.run.process_available()
    faults.set_fault(point, None)
    live.start(sums(live))
    live.run.process_available()
    assert live.run.read_result("sums").to_pylist() == [{"k": "a", "n": 2, "s": 21}]
    assert live.run.modification(1).phase is Phase.APPLIED
    assert live.run.modification(1).epoch == 1
    assert live.epoch(("a", 3)) == [{"k": "a", "n": 3, "s": 51}]


def test_a_change_that_waited_is_checked_again_by_the_next_driver(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    assert live.submit(TENFOLD).phase is Phase.WAITING
    live.run.stop()
    live.start(sums(live))
    assert live.settled(live.run.modification(1)).phase is Phase.WAITING
    assert live.epoch(("a", 2)) == [{"k": "a", "n": 2, "s": 21}]


def test_a_change_that_waits_for_a_start_that_takes_long(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.start(sums(live), ("a", 1))
    assert live.submit(TENFOLD).phase is Phase.WAITING
    live.run.stop()
    slowed(monkeypatch, EpochRunner, "go_on", 0.6)
    slowed(monkeypatch, ChangeLog, "submission", 0.2)
    live.start(sums(live))
    assert live.settled(live.run.modification(1)).phase is Phase.WAITING


def test_a_change_that_does_not_fit_the_program_any_more(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    live.change(TENFOLD, ("a", 2))
    live.run.stop()
    other = live.source().key_by("k").aggregate("sums", n=F.count("*"), s=F.sum("v"), parallelism=2)
    with pytest.raises(MidstreamError, match=r"LIVE_CHANGE_DOES_NOT_FIT.*replace clean"):
        live.start(other.sink("out", live.sink))
    live.start(other.sink("out", live.sink), ("a", 3), live_changes="drop")
    assert live.output(2) == [{"k": "a", "n": 3, "s": 24}]


def test_a_run_that_is_not_changeable(live: Live) -> None:
    live.start(sums(live), ("a", 1), changeable=False)
    for ask in (lambda: live.run.apply(TENFOLD), live.run.undo, lambda: live.run.shadow(TENFOLD)):
        with pytest.raises(MidstreamError, match="NOT_CHANGEABLE"):
            ask()
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 2, "s": 2}]


class TestOnAnObjectStore:
    """Everything about changes lies in the checkpoint: another machine goes on with them."""

    @pytest.fixture
    def place(self, live: Live, s3_server: S3Server) -> dict[str, Any]:
        live.checkpoint = s3_server.url(f"changes/{uuid4().hex}")
        return {"store_options": s3_server.options}

    def test_changes(self, live: Live, place: dict[str, Any]) -> None:
        live.start(sums(live), ("a", 1), **place)
        live.change(TENFOLD, ("a", 2))
        live.change(ms.Rescale("sums", 5), ("a", 2))
        live.run.stop()
        live.start(sums(live), ("a", 3), **place)
        assert live.output(3) == [{"k": "a", "n": 4, "s": 1 + 20 + 20 + 30}]
        assert live.run.graph().step("sums").partitions == 5

    def test_a_source_that_comes_and_goes(self, live: Live, place: dict[str, Any], tmp_path: Any) -> None:
        first, late = (Inbox(tmp_path / name, live.events.schema) for name in ("first", "late"))
        live.start(union(live, first), ("a", 1), **place)
        late.add(("a", 10))
        live.run.apply(ms.Insert("early", source=load(late), into="all"), timeout=60)
        live.run.stop()
        late.add(("a", 100))
        live.start(union(live, first), **place)
        live.run.process_available()
        assert totals(live) == {"a": (3, 111)}
        undone = live.run.undo(wait=False)
        assert live.settled(undone).phase is Phase.WAITING
        live.handed_over()
        late.add(("a", 1000))
        live.epoch(("a", 1))
        assert live.run.modification(undone.id).phase is Phase.APPLIED
        live.run.stop()
        live.start(union(live, first), ("a", 1), **place)
        assert totals(live) == {"a": (5, 113)}
