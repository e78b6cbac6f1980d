"""Sources that come and go while the pipeline runs: Spark's query changes hands, state and offsets stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from tests.engine.harness import Inbox
from tests.modify.live import Live


def union(live: Live, *others: Inbox) -> ms.Pipeline:
    streams = [other.source(f"more{number}") for number, other in enumerate(others)]
    both = live.source().union("all", *streams)
    return both.key_by("k").aggregate("sums", n=F.count("*"), s=F.sum("v")).sink("out", live.sink)


def load(inbox: Inbox) -> Callable[[Any], Any]:
    inbox.directory.mkdir(parents=True, exist_ok=True)
    schema, directory = inbox.schema, str(inbox.directory)
    return lambda spark: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(directory)


@pytest.fixture
def more(tmp_path: Path) -> list[Inbox]:
    return [Inbox(tmp_path / f"in{number}", "k string, v bigint") for number in range(3)]


def totals(live: Live) -> dict[str, tuple[int, int]]:
    rows = live.run.read_result("sums").to_pylist()
    return {row["k"]: (row["n"], row["s"]) for row in rows}


def test_a_source_comes_and_goes(live: Live, more: list[Inbox]) -> None:
    run = live.start(union(live, more[0]), ("a", 1))
    verdict = run.plan(ms.Insert("late", source=load(more[1]), into="all"))
    assert verdict.hand_over
    assert "one hand-over" in str(verdict)
    more[1].add(("a", 10))
    applied = run.apply(ms.Insert("late", source=load(more[1]), into="all"), timeout=60)
    assert applied.phase is Phase.APPLIED
    run.process_available()
    assert totals(live) == {"a": (2, 11)}
    more[0].add(("b", 5))
    live.events.add(("b", 6))
    more[1].add(("b", 7))
    run.process_available()
    assert totals(live) == {"a": (2, 11), "b": (3, 18)}

    live.submit(ms.Remove("late"))
    live.handed_over()
    more[1].add(("b", 1000))
    live.epoch(("a", 1))
    run.process_available()
    assert [step.id for step in run.graph().steps if step.kind == "source"] == ["events", "more0"]
    assert totals(live) == {"a": (3, 12), "b": (3, 18)}
    live.epoch(("a", 1))
    assert totals(live)["a"] == (4, 13)


def test_a_restart_after_a_source_came(live: Live, more: list[Inbox]) -> None:
    live.start(union(live, more[0]), ("a", 1))
    more[1].add(("a", 10))
    live.run.apply(ms.Insert("early", source=load(more[1]), into="all"), timeout=60)
    live.run.stop()
    more[1].add(("a", 100))
    live.events.add(("a", 1))
    live.start(union(live, more[0]))
    live.run.process_available()
    assert totals(live) == {"a": (4, 112)}
    live.undo()
    live.handed_over()
    more[1].add(("a", 1000))
    live.epoch(("a", 1))
    live.run.process_available()
    assert live.run.modification(2).phase is Phase.APPLIED
    assert totals(live) == {"a": (5, 113)}


def test_a_branch_with_a_source_of_its_own(live: Live, more: list[Inbox]) -> None:
    stream = live.source().key_by("k").aggregate("sums", n=F.count("*"), s=F.sum("v"))
    live.start(stream.sink("out", live.sink), ("a", 1))
    other = ms.sinks.memory()
    more[0].add(("x", 5))
    branch = ms.ChangeSet([ms.Insert("xs", source=load(more[0])), ms.Insert("x-out", sink=other, after="xs")])
    live.run.apply(branch, timeout=60)
    live.run.process_available()
    assert other.to_pylist() == [{"k": "x", "v": 5}]
    live.epoch(("a", 2))
    assert totals(live) == {"a": (2, 3)}


def broken(spark: Any) -> Any:
    return spark.readStream.format("no such format").load()


def test_a_source_that_cannot_be_read_is_refused(live: Live, more: list[Inbox]) -> None:
    live.start(union(live, more[0]), ("a", 1))
    refused = live.submit(ms.Insert("late", source=broken, into="all"))
    assert refused.phase is Phase.REJECTED
    assert "no such format" in str(refused.reason)
    live.epoch(("a", 1))
    assert totals(live) == {"a": (2, 2)}


def test_a_first_epoch_that_fails_goes_back_to_the_sources_before(live: Live, more: list[Inbox]) -> None:
    live.start(union(live, more[0]), ("a", 1))
    evil = ms.ChangeSet(
        [
            ms.Insert("late", source=load(more[1]), into="all"),
            ms.Insert("check", sql="SELECT k, if(v = 666, raise_error('evil'), v) AS v FROM input", after="all"),
        ]
    )
    more[1].add(("a", 666))
    pending = live.run.apply(evil, wait=False)
    with pytest.raises(ms.MidstreamError, match="evil"):
        live.run._outcome_of(pending, 60)
    assert live.run.modification(pending.id).phase is Phase.ROLLED_BACK
    live.epoch(("a", 1))
    assert totals(live) == {"a": (2, 2)}
    assert live.run.status == "running"
