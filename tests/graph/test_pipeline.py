from __future__ import annotations

from typing import Any

import pytest

import midstream as ms
from midstream.errors import GraphError


def stream(id: str = "orders") -> ms.Stream:
    return ms.source(id, lambda spark: spark.readStream.format("rate").load())


def clean(frame: Any) -> Any:
    return frame


def test_steps_come_inputs_first_and_once() -> None:
    orders = stream()
    cleaned = orders.transform("clean", clean)
    a = cleaned.key_by("x").aggregate("a", n="count(*)").sink("out-a", ms.sinks.noop())
    b = cleaned.union("both", stream("other")).sink("out-b", ms.sinks.noop())
    flow = ms.pipeline(a, b)
    assert [step.id for step in flow.steps] == ["orders", "clean", "a", "out-a", "other", "both", "out-b"]
    assert [step.id for step in flow.sources] == ["orders", "other"]
    assert [step.id for step in flow.keyed] == ["a"]
    assert [reader.id for reader in flow.consumers["clean"]] == ["a", "both"]
    assert [step.kind for step in flow.steps] == ["source", "transform", "aggregate", "sink", "source", "union", "sink"]


def test_a_pipeline_is_immutable() -> None:
    flow = stream().sink("out", ms.sinks.noop())
    with pytest.raises(AttributeError):
        flow.sinks = ()  # type: ignore[misc]


def test_two_steps_may_not_share_an_id() -> None:
    with pytest.raises(GraphError, match=r"DUPLICATE_STEP_ID.*'orders'"):
        stream().transform("orders", clean).sink("out", ms.sinks.noop())


@pytest.mark.parametrize("id", ["", "1st", "a b", "a/b", "../x", "ä", "x" * 65, None])
def test_an_id_that_cannot_name_a_folder_is_refused(id: Any) -> None:
    with pytest.raises(GraphError, match="BAD_STEP_ID"):
        stream(id)


def test_keys_are_names_of_columns() -> None:
    for given in ((), (1,), (None,)):
        with pytest.raises(GraphError, match="BAD_KEY"):
            stream().key_by(*given)


def test_an_aggregate_computes_something_under_a_name_of_its_own() -> None:
    with pytest.raises(GraphError, match="NO_AGGREGATES"):
        stream().key_by("k").aggregate("totals")
    with pytest.raises(GraphError, match=r"DUPLICATE_COLUMN.*k"):
        stream().key_by("k").aggregate("totals", k="count(*)")


@pytest.mark.parametrize("given", [0, -1, 4097, 1.5, "2"])
def test_parallelism_is_a_small_whole_number(given: Any) -> None:
    with pytest.raises(GraphError, match="BAD_PARALLELISM"):
        stream().key_by("k").aggregate("totals", n="count(*)", parallelism=given)


def test_a_stateful_step_needs_a_function() -> None:
    with pytest.raises(GraphError, match=r"NOT_A_FUNCTION.*42"):
        stream().key_by("k").stateful("s", 42, state="n int", output="n int")  # type: ignore[arg-type]


def test_no_sink_no_pipeline() -> None:
    with pytest.raises(GraphError, match="NO_SINK"):
        ms.pipeline()
