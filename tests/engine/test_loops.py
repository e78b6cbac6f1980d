"""Loops: what is fed back in one epoch enters in the next, and is part of the checkpoint in between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.engine import faults
from midstream.errors import GraphError, MidstreamError
from tests.engine.harness import Inbox, run_available
from tests.modify.live import Live

NUMBERS = "start bigint, n bigint, steps bigint"
ONE_STEP = "SELECT start, if(n % 2 = 0, n DIV 2, 3 * n + 1) AS n, steps + 1 AS steps FROM input"


def collatz(numbers: ms.Stream, sink: Any) -> ms.Pipeline:
    """Every number goes round until it has become 1."""
    back = ms.loop("again", NUMBERS)
    stepped = numbers.union("all", back).sql("step", ONE_STEP)
    done = stepped.sql("done", "SELECT start, steps FROM input WHERE n = 1").sink("out", sink)
    return ms.pipeline(done, stepped.sql("rest", "SELECT * FROM input WHERE n <> 1").feedback("back", to=back))


def steps_of(n: int) -> int:
    steps = 0
    while n != 1 or not steps:
        n, steps = n // 2 if n % 2 == 0 else 3 * n + 1, steps + 1
    return steps


def numbers(*starts: int) -> list[tuple[int, int, int]]:
    return [(start, start, 0) for start in starts]


def found(sink: Any) -> dict[int, int]:
    rows = sink.to_pylist()
    assert len({row["start"] for row in rows}) == len(rows)
    return {row["start"]: row["steps"] for row in rows}


def test_a_bounded_input_ends_when_the_loop_is_empty(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    given, sink = inbox(NUMBERS), ms.sinks.memory()
    given.add(*numbers(1, 2, 3, 8))
    given.add(*numbers(5, 16))
    run = run_available(collatz(given.source(), sink), spark, tmp_path / "chk")
    assert found(sink) == {n: steps_of(n) for n in (1, 2, 3, 5, 8, 16)}
    assert run.last_epoch == steps_of(3) - 1, "as many epochs as the longest way, no more"
    # Started again, it has nothing to do, and goes on with what comes.
    given.add(*numbers(4))
    assert run_available(collatz(given.source(), sink), spark, tmp_path / "chk").last_epoch == run.last_epoch + 2
    assert found(sink)[4] == 2


def test_a_live_run_goes_round_without_rows_of_its_source(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    given, sink = inbox(NUMBERS), ms.sinks.memory()
    run = collatz(given.source(), sink).start(spark, str(tmp_path / "chk"))
    given.add(*numbers(3))
    run.process_available()
    assert found(sink) == {3: 7}
    settled = run.last_epoch
    given.add(*numbers(6))
    run.process_available()
    assert found(sink) == {3: 7, 6: 8}
    assert run.last_epoch == settled + 8
    run.stop()


@pytest.mark.parametrize(
    "point", ["committed", *(pytest.param(point, marks=pytest.mark.long) for point in ("executed", "finalised"))]
)
def test_a_crash_with_rows_under_way(
    point: str, spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    given, sink = inbox(NUMBERS), ms.sinks.memory()
    given.add(*numbers(3, 8))
    given.add(*numbers(5))
    passes = iter(range(3))

    def fail() -> None:
        if next(passes, None) is None:
            raise OSError("the driver has died")

    faults.set_fault(point, fail)
    try:
        with pytest.raises(MidstreamError, match="the driver has died"):
            run_available(collatz(given.source(), sink), spark, tmp_path / "chk")
    finally:
        faults.set_fault(point, None)
    run_available(collatz(given.source(), sink), spark, tmp_path / "chk")
    assert found(sink) == {3: 7, 5: 5, 8: 3}


LABELS = pa.schema([("node", pa.int64()), ("to", pa.int64()), ("label", pa.int64())])
NODES = pa.schema([("node", pa.int64()), ("label", pa.int64()), ("near", pa.list_(pa.int64()))])


def spread(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The least label a node has heard of, and what it tells its neighbours when that has changed.

    Rows are edges (`to` set) or labels that have come (`to` null).
    """
    known = {row["node"]: (row["label"], set(row["near"])) for row in state.to_pylist()}
    by_node: dict[int, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        by_node.setdefault(row["node"], []).append(row)
    told = []
    for node, arrived in by_node.items():
        label, before = known.get(node, (None, set()))
        near = before | {row["to"] for row in arrived if row["to"] is not None}
        least = min([node, *([label] if label is not None else []), *(row["label"] for row in arrived)])
        told += [{"node": n, "label": least} for n in (near if least != label else near - before)]
        known[node] = (least, near)
    kept = [{"node": node, "label": label, "near": sorted(near)} for node, (label, near) in known.items()]
    return pa.Table.from_pylist(told, LABELS), pa.Table.from_pylist(kept, NODES)


def test_connected_components(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    """State within the loop: labels travel along edges until nothing changes."""
    chance = random.Random(4)
    edges = [(chance.randrange(60), chance.randrange(60)) for _ in range(45)]
    both = [(a, b, min(a, b)) for a, b in edges] + [(b, a, min(a, b)) for a, b in edges]
    given = inbox("node bigint, to bigint, label bigint")
    for part in range(3):
        given.add(*both[part::3])
    back = ms.loop("heard", "node bigint, to bigint, label bigint")
    heard = given.source().union("all", back).key_by("node")
    labels = heard.stateful(
        "labels", spread, state="label bigint, near array<bigint>", output="node bigint, to bigint, label bigint"
    )
    run = run_available(labels.feedback("tell", to=back), spark, tmp_path / "chk")
    assert {row["node"]: row["label"] for row in run.read_state("labels").to_pylist()} == components(edges)


def components(edges: list[tuple[int, int]]) -> dict[int, int]:
    labels = {node: node for edge in edges for node in edge}
    while True:
        before = dict(labels)
        for a, b in edges:
            labels[a] = labels[b] = min(labels[a], labels[b])
        if labels == before:
            return labels


def test_a_step_within_a_loop_is_replaced_while_rows_go_round(spark: SparkSession, tmp_path: Path) -> None:
    live = Live(spark, tmp_path)
    back = ms.loop("again", "k string, v bigint")
    counted = live.source().union("all", back).sql("count", "SELECT k, v - 1 AS v FROM input")
    ends = counted.sql("done", "SELECT * FROM input WHERE v <= 0").sink("out", live.sink)
    rest = counted.sql("rest", "SELECT * FROM input WHERE v > 0").feedback("back", to=back)
    run = live.start(ms.pipeline(ends, rest))
    live.events.add(("a", 1_000_000))
    run.apply(ms.Replace("count", sql="SELECT k, v - 1000000 AS v FROM input"), timeout=60)
    run.process_available()
    rows = live.sink.to_pylist()
    assert [row["k"] for row in rows] == ["a"]
    assert -1_000_000 < rows[0]["v"] <= 0, "counted down by one until the change, then at once"
    run.stop()


def test_a_loop_that_goes_takes_its_rows_only_when_told_to(spark: SparkSession, tmp_path: Path) -> None:
    live = Live(spark, tmp_path)
    back = ms.loop("again", "k string, v bigint")
    every = live.source().union("all", back)
    run = live.start(ms.pipeline(every.sink("out", live.sink), every.feedback("back", to=back)))
    live.events.add(("a", 1))
    while run.last_epoch < 2:
        time.sleep(0.05)
    gone = ms.ChangeSet([ms.Remove("back"), ms.Remove("again")])
    assert any("again" in loss for loss in run.plan(gone).losses)
    with pytest.raises(MidstreamError, match="allow_state_loss"):
        run.apply(gone, timeout=60)
    run.stop()


def test_loops_that_are_none(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    given, noop = inbox(NUMBERS), ms.sinks.noop()
    back = ms.loop("again", NUMBERS)
    with pytest.raises(GraphError, match=r"OPEN_LOOP.*again begin, and none"):
        given.source().union("all", back).sink("out", noop).start(spark, str(tmp_path / "chk"))
    with pytest.raises(GraphError, match=r"NOT_A_LOOP.*'events'"):
        given.source().feedback("back", to=given.source())
    other = given.source().union("all", back).sql("fewer", "SELECT start, n FROM input")
    with pytest.raises(GraphError, match=r"OTHER_COLUMNS_FED_BACK.*'steps' is gone"):
        other.feedback("back", to=back).start(spark, str(tmp_path / "chk"))
