"""Changes on graphs alone: what reads what afterwards, and which changes make no sense."""

from __future__ import annotations

from typing import Any

import pytest

import midstream as ms
from midstream.changes.change import Change, ChangeSet, Insert, Remove, Replace, Rescale, Tune
from midstream.changes.edit import changed
from midstream.errors import MidstreamError
from midstream.graph.steps import AggregateStep, KeyedStep, SqlStep, StatefulStep, Step
from midstream.state.hashspace import HASH_MIN, even_ranges


def same(df: Any) -> Any:
    return df


def fn(rows: Any, state: Any) -> Any:
    return rows, state


def load(spark: Any) -> Any:
    return spark


@pytest.fixture
def flow() -> ms.Pipeline:
    """Two sources, a union, a transform, two keyed steps, three sinks."""
    both = ms.source("left", load).union("both", ms.source("right", load))
    clean = both.transform("clean", same)
    totals = clean.key_by("k").aggregate("totals", n="count(*)", output_mode="complete", parallelism=3)
    seen = clean.key_by("k").stateful("seen", fn, state="s int", output="k int")
    raw, out, log = (
        clean.sink("raw", ms.sinks.noop()),
        totals.sink("out", ms.sinks.noop()),
        seen.sink("log", ms.sinks.noop()),
    )
    return ms.pipeline(raw, out, log)


def edges(pipeline: ms.Pipeline) -> set[str]:
    return {f"{i.id} {step.id}" for step in pipeline.steps for i in step.inputs}


def step(pipeline: ms.Pipeline, id: str) -> Step:
    return next(s for s in pipeline.steps if s.id == id)


def differences(flow: ms.Pipeline, change: Change) -> tuple[set[str], set[str]]:
    """Edges that go, and edges that come."""
    before, after = edges(flow), edges(changed(flow, change))
    return before - after, after - before


@pytest.mark.parametrize(
    ("change", "gone", "come"),
    [
        (
            Insert("x", same, after="clean"),
            {"clean totals", "clean seen", "clean raw"},
            {"clean x", "x totals", "x seen", "x raw"},
        ),
        (Insert("x", same, before="totals"), {"clean totals"}, {"clean x", "x totals"}),
        (Insert("x", same, between=("clean", "raw")), {"clean raw"}, {"clean x", "x raw"}),
        (Insert("x", same, between=("left", "both")), {"left both"}, {"left x", "x both"}),
        (Insert("x", sql="SELECT 1", after="totals"), {"totals out"}, {"totals x", "x out"}),
        (Insert("x", key_by="k", aggregate={"n": "count(*)"}, before="raw"), {"clean raw"}, {"clean x", "x raw"}),
        (Insert("x", sink=ms.sinks.noop(), after="totals"), set(), {"totals x"}),
        (Insert("x", source=load, into="both"), set(), {"x both"}),
        (
            ChangeSet([Insert("x", same, after="clean", branch=True), Insert("y", sink=ms.sinks.noop(), after="x")]),
            set(),
            {"clean x", "x y"},
        ),
        (
            ChangeSet([Insert("x", source=load), Insert("y", sink=ms.sinks.noop(), after="x")]),
            set(),
            {"x y"},
        ),
        (
            Remove("clean"),
            {"both clean", "clean totals", "clean seen", "clean raw"},
            {"both totals", "both seen", "both raw"},
        ),
        (Remove("totals"), {"clean totals", "totals out"}, {"clean out"}),
        (Remove("raw"), {"clean raw"}, set()),
        (Remove("out"), {"clean totals", "totals out"}, set()),
        (Remove("left"), {"left both"}, set()),
        (ChangeSet([Remove("clean"), Insert("clean", same, after="both")]), set(), set()),
        (Replace("clean", sql="SELECT * FROM input"), set(), set()),
    ],
    ids=lambda value: ", ".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_who_reads_whom(flow: ms.Pipeline, change: Change, gone: set[str], come: set[str]) -> None:
    assert differences(flow, change) == (gone, come)


def test_the_old_pipeline_stays_and_untouched_steps_are_shared(flow: ms.Pipeline) -> None:
    before = edges(flow)
    after = changed(flow, Insert("x", same, before="out"))
    assert edges(flow) == before
    assert step(after, "totals") is step(flow, "totals")
    assert step(after, "seen") is step(flow, "seen")


def test_a_replaced_step_keeps_what_is_not_said(flow: ms.Pipeline) -> None:
    totals = step(changed(flow, Replace("totals", aggregate={"n": "count(*)", "m": "max(v)"})), "totals")
    assert isinstance(totals, AggregateStep)
    assert (totals.keys, totals.parallelism, str(totals.output_mode)) == (("k",), 3, "complete")
    assert list(totals.aggregates) == ["n", "m"]

    def other(rows: Any, state: Any) -> Any:
        return rows, state

    seen = step(changed(flow, Replace("seen", other)), "seen")
    assert isinstance(seen, StatefulStep)
    assert seen.function is other
    assert seen.state["state"].schema == "s int"
    assert seen.output == "k int"
    wider = step(changed(flow, Replace("seen", state="s bigint")), "seen")
    assert isinstance(wider, StatefulStep)
    assert (wider.function, wider.state["state"].schema) == (fn, "s bigint")


def test_partitions(flow: ms.Pipeline) -> None:
    four = step(changed(flow, Rescale("totals", 4)), "totals")
    assert isinstance(four, KeyedStep)
    assert (four.parallelism, four.ranges) == (4, None)
    starts = [r.start for r in even_ranges(8)][:3]
    uneven = step(changed(flow, Rescale("totals", starts)), "totals")
    assert isinstance(uneven, KeyedStep)
    assert uneven.parallelism == 3
    assert uneven.ranges is not None
    assert [r.start for r in uneven.ranges] == starts
    again = step(changed(changed(flow, Rescale("totals", starts)), Rescale("totals", 2)), "totals")
    assert isinstance(again, KeyedStep)
    assert (again.parallelism, again.ranges) == (2, None)


def test_compaction_of_one_step_and_of_all(flow: ms.Pipeline) -> None:
    policy = ms.CompactionPolicy(deltas=99)
    one = changed(flow, Tune("totals", compaction=policy))
    assert [s.compaction.deltas for s in one.keyed] == [99, ms.CompactionPolicy().deltas]
    assert {s.compaction.deltas for s in changed(flow, Tune(compaction=policy)).keyed} == {99}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Replace("totls", same), "UNKNOWN_STEP.*did you mean 'totals'"),
        (Remove("totls"), "UNKNOWN_STEP"),
        (Rescale("totls", 2), "UNKNOWN_STEP"),
        (Tune("totls", compaction=ms.CompactionPolicy()), "UNKNOWN_STEP"),
        (Insert("x", same, after="nowhere"), "UNKNOWN_STEP.*'nowhere'"),
        (Insert("x", same, between=("clean", "nowhere")), "UNKNOWN_STEP"),
        (Insert("clean", same, after="both"), "STEP_EXISTS.*transform step of that name"),
        (Insert("x", same), "NO_PLACE.*nothing was given"),
        (Insert("x", same, after="clean", before="raw"), "NO_PLACE.*'after', 'before' together"),
        (Insert("x", same, into="both"), "NO_PLACE"),
        (Insert("x", source=load, after="both"), "NO_PLACE"),
        (Insert("x", source=load, into="clean"), "WRONG_KIND_OF_STEP.*'clean' is a transform step"),
        (Insert("x", same, before="both"), "SEVERAL_INPUTS.*'left', 'right'"),
        (Insert("x", same, before="left"), "WRONG_KIND_OF_STEP"),
        (Insert("x", same, between=("left", "raw")), "NOT_CONNECTED.*'raw' reads 'clean'"),
        (Insert("x", sink=ms.sinks.noop(), before="raw"), "WRONG_KIND_OF_STEP.*nothing reads a sink"),
        (Insert("x", same, after="clean", branch=True), "LEADS_NOWHERE.*'x'"),
        (Insert("x", same, after="raw"), "LEADS_NOWHERE"),
        (Insert("x", source=load), "LEADS_NOWHERE"),
        (Insert("x", after="clean"), "NO_BODY.*nothing was given"),
        (Insert("x", same, sql="SELECT 1", after="clean"), "NO_BODY.*'function', 'sql' together"),
        (Insert("x", aggregate={"n": "count(*)"}, after="clean"), "NO_BODY"),
        (Insert("x", fn, key_by="k", after="clean"), "NO_BODY"),
        (Insert("x y", same, after="clean"), "BAD_STEP_ID"),
        (Insert("x", key_by="k", aggregate={}, after="clean"), "NO_AGGREGATES"),
        (Insert("x", key_by="k", aggregate={"k": "count(*)"}, after="clean"), "DUPLICATE_COLUMN"),
        (Replace("clean", sink=ms.sinks.noop()), "WRONG_KIND_OF_STEP"),
        (Replace("raw", same), "WRONG_KIND_OF_STEP"),
        (Replace("left", same), "WRONG_KIND_OF_STEP"),
        (Replace("both", same), "WRONG_KIND_OF_STEP"),
        (Replace("clean"), "NO_BODY"),
        (Remove("both"), "SEVERAL_INPUTS"),
        (ChangeSet([Remove("left"), Remove("right")]), "WRONG_KIND_OF_STEP"),
        (ChangeSet([Remove("raw"), Remove("out"), Remove("log")]), "NO_SINK"),
        (Rescale("clean", 2), "WRONG_KIND_OF_STEP.*a step with state"),
        (Rescale("totals", 0), "BAD_RANGES"),
        (Rescale("totals", 4097), "BAD_RANGES"),
        (Rescale("totals", [0]), "BAD_RANGES.*smallest hash"),
        (Rescale("totals", [HASH_MIN, 5]), "BAD_RANGES.*multiples"),
        (Rescale("totals", []), "BAD_RANGES"),
    ],
    ids=str,
)
def test_changes_that_make_no_sense(flow: ms.Pipeline, change: Change, expected: str) -> None:
    with pytest.raises(MidstreamError, match=f"(?s){expected}"):
        changed(flow, change)


def test_a_change_set_needs_a_change() -> None:
    with pytest.raises(MidstreamError, match="EMPTY_CHANGE_SET"):
        ChangeSet([])


def test_sql_over_several_steps_is_replaced_by_sql() -> None:
    left, right = ms.source("left", load), ms.source("right", load)
    joined = left.sql("joined", "SELECT * FROM input JOIN names USING (k)", names=right)
    before = joined.sink("out", ms.sinks.noop())

    after = step(changed(before, Replace("joined", sql="SELECT k FROM input LEFT JOIN names USING (k)")), "joined")

    assert [i.id for i in after.inputs] == ["left", "right"]
    assert isinstance(after, SqlStep)
    assert after.views == ("input", "names")


def test_sql_that_reads_another_step_is_put_in(flow: ms.Pipeline) -> None:
    insert = Insert(
        "more", sql="SELECT * FROM input JOIN totals USING (k)", after="clean", branch=True, reads=["totals"]
    )

    after = step(changed(flow, ChangeSet([insert, Insert("log2", sink=ms.sinks.noop(), after="more")])), "more")

    assert [i.id for i in after.inputs] == ["clean", "totals"]
    assert isinstance(after, SqlStep)
    assert after.views == ("input", "totals")
