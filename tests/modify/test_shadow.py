"""Shadows: a change run beside the pipeline on the same epochs, compared, then promoted or dropped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from midstream.errors import MidstreamError
from tests.modify.live import Live
from tests.modify.test_apply import count_up, counting, sums
from tests.modify.test_sources import load


def doubled(df: DataFrame) -> DataFrame:
    return df.where("v >= 0").withColumn("v", F.when(F.col("k") == "b", F.col("v") * 2).otherwise(F.col("v")))


def test_a_shadow_is_compared_and_promoted(live: Live) -> None:
    run = live.start(sums(live), ("a", 1), ("b", 1))
    shadow = run.shadow(ms.Replace("clean", doubled))
    assert live.epoch(("a", 1), ("b", 10)) == [{"k": "a", "n": 2, "s": 2}, {"k": "b", "n": 2, "s": 11}]
    assert live.epoch(("a", 1), ("c", 3)) == [{"k": "a", "n": 3, "s": 3}, {"k": "c", "n": 1, "s": 3}]
    report = shadow.report()
    assert report.epochs == 2
    output = report.outputs["out"]
    assert (output.rows_old, output.rows_new, output.changed, output.only_old, output.only_new) == (4, 4, 1, 0, 0)
    assert output.samples == (({"k": "b", "n": 2, "s": 11}, {"k": "b", "n": 2, "s": 21}),)
    assert report.state["sums"].changed == 1
    assert report.shadow_ms > 0
    assert "1 changed" in str(report)

    pending = shadow.promote(wait=False)
    assert live.settled(pending).phase is Phase.WAITING
    assert live.epoch(("b", 1)) == [{"k": "b", "n": 3, "s": 23}], "goes on with the state the shadow has built"
    assert run.modification(pending.id).phase is Phase.APPLIED
    assert run._runner.shadow is None
    assert live.epoch(("a", 1), ("b", 1)) == [{"k": "a", "n": 4, "s": 4}, {"k": "b", "n": 4, "s": 25}]


def test_a_discarded_shadow_leaves_nothing_behind(live: Live) -> None:
    run = live.start(sums(live), ("a", 1))
    shadow = run.shadow(ms.Replace("clean", doubled))
    live.epoch(("b", 1))
    pinned = run._pinned()
    assert pinned
    shadow.discard()
    live.epoch(("b", 1))
    assert run._pinned() == set()
    store = run._ledger.store
    assert not list(store.list("shadows"))
    named = set().union(*(run._ledger.read(epoch).paths for epoch in run._ledger.epochs()))
    run._collector._sweep(run.last_epoch)
    assert {item.path for item in store.list("segments")} == named
    assert live.run.history() == []


def test_pinned_files_outlive_the_epochs_that_named_them(live: Live) -> None:
    run = live.start(sums(live), ("a", 1), ("b", 1), retain_epochs=1)
    shadow = run.shadow(ms.Replace("clean", lambda df: df))
    for _ in range(12):
        live.epoch(("a", 1))
    run._collector._sweep(run.last_epoch)
    report = shadow.report()
    assert report.error is None
    assert report.state["sums"].is_none
    live.settled(shadow.promote(wait=False))
    assert live.epoch(("b", 1)) == [{"k": "b", "n": 2, "s": 2}]


def raises_at_666(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    if 666 in rows["v"].to_pylist():
        raise ValueError("evil number")
    return count_up(rows, state)


def test_a_shadow_that_fails_does_not_disturb(live: Live) -> None:
    live.start(counting(live), ("a", 1))
    shadow = live.run.shadow(ms.Replace("count", raises_at_666))
    assert live.epoch(("a", 666)) == [{"k": "a", "n": 2}]
    assert "evil number" in str(shadow.report().error)
    with pytest.raises(MidstreamError, match=r"SHADOW_ENDED.*evil number"):
        shadow.promote()
    assert live.run.shadow(ms.Replace("count", count_up)).report().error is None


def test_a_shadow_ends_when_the_pipeline_changes(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    shadow = live.run.shadow(ms.Replace("clean", doubled))
    with pytest.raises(MidstreamError, match="SHADOW_RUNS"):
        live.run.shadow(ms.Replace("clean", doubled))
    live.change(ms.Rescale("sums", 3), ("a", 1))
    assert "has changed" in str(shadow.report().error)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (ms.Remove("nothing"), "UNKNOWN_STEP"),
        (ms.Insert("more", source=load, into="all"), "UNKNOWN_STEP"),
        (ms.Tune(trigger_seconds=3), "CANNOT_BE_SHADOWED"),
    ],
    ids=str,
)
def test_what_cannot_be_shadowed(live: Live, change: Any, expected: str) -> None:
    live.start(sums(live), ("a", 1))
    with pytest.raises(MidstreamError, match=expected):
        live.run.shadow(change)
    assert live.run._runner.shadow is None


def test_a_shadow_with_new_steps_and_without_some(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    shadow = live.run.shadow(
        ms.ChangeSet([ms.Insert("raw", sink=ms.sinks.memory(), after="clean"), ms.Rescale("sums", 5)])
    )
    live.epoch(("a", 1))
    report = shadow.report()
    assert report.error is None
    assert report.outputs["out"].is_none
    assert report.state["sums"].is_none
