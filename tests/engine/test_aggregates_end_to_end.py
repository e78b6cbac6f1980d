"""Every aggregate through whole pipelines, epoch by epoch, against batch Spark on the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.internals import SessionConf
from midstream.state.ledger import read_manifest
from tests.engine.harness import Inbox, hashable, preaggregated, run_available

SCHEMA = "k string, i int, x bigint, d double, e decimal(12,3), s string, t timestamp, b boolean, l array<int>"
KEYS = ["a", "b", "c", "d", "e", None]

GROUPED: dict[str, Column | str] = {
    "rows": "count(*)",
    "values": "count(x)",
    "pairs": "count(x, s)",
    "positive": "count_if(x > 0)",
    "sum_i": "sum(i)",
    "sum_x": "sum(x)",
    "sum_d": "sum(d)",
    "sum_e": "sum(e)",
    "sum_filtered": "sum(x) FILTER (WHERE b AND i > 0)",
    "sum_of_both": "sum(i + x)",
    "min_x": "min(x)",
    "max_x": "max(x)",
    "min_d": "min(d)",
    "max_s": "max(s)",
    "min_t": "min(t)",
    "max_e": "max(e)",
    "max_b": "max(b)",
    "min_l": "min(l)",
    "avg_i": "avg(i)",
    "avg_d": "avg(d)",
    "avg_e": "avg(e)",
    "first_x": "first(x)",
    "last_s": "last(s)",
    "first_known": "first(x, true)",
    "last_known": "last(s) IGNORE NULLS",
    "stddev": "stddev(d)",
    "stddev_pop": "stddev_pop(x)",
    "variance": "var_samp(i)",
    "every": "bool_and(b)",
    "some": "some(b)",
}
"""Aggregates whose rows can be partly aggregated before the exchange."""

PER_ROW: dict[str, Column | str] = {
    "distinct_x": "count(DISTINCT x)",
    "distinct_pairs": "count(DISTINCT s, b)",
    "distinct_filtered": "count(DISTINCT i) FILTER (WHERE x > 0)",
    "list_x": "collect_list(x)",
    "list_filtered": "collect_list(s) FILTER (WHERE b)",
    "set_b": "collect_set(b)",
    "sum_again": "sum(x)",
}
"""Aggregates that need every row, and one that does not."""


def columns() -> dict[str, Column | str]:
    """The same, said with PySpark's functions; those want a session."""
    return {
        "n": F.count("*"),
        "total": F.sum(F.col("x") * 2),
        "low": F.min("d"),
        "high": F.max("t"),
        "mean": F.avg("x"),
        "start": F.first("s", ignorenulls=True),
        "end": F.last("s"),
        "spread": F.stddev("x"),
        "distinct": F.count_distinct("s", "b"),
        "kept": F.collect_list("i"),
    }


LONGEST = ms.fold("s", initial="", add=lambda best, s: max(best, s or "", key=len), type="string")
RANGE = ms.fold(
    *("i", "x"),
    initial={"n": 0, "seen": []},
    add=lambda acc, i, x: {"n": acc["n"] + (i or 0), "seen": [*acc["seen"], x][-3:]},
    type="struct<n: bigint, seen: array<bigint>>",
    finish=lambda acc: f"{acc['n']} {acc['seen']}",
    result_type="string",
)
Results = dict[Any, dict[str, Any]]
"""By key, then by the name of the aggregate."""

EPOCHS = 4
EMPTY = 2
"""The epoch without rows: nothing changes, and a complete result is given again."""


def steps() -> dict[str, dict[str, Any]]:
    folds = {"longest": LONGEST, "range": RANGE}
    return {"grouped": GROUPED, "per-row": PER_ROW, "columns": columns(), "folds": folds}


def rows_of(epoch: int) -> list[tuple[Any, ...]]:
    """Random rows, some values null. Fractions are quarters, so that sums are exact in any order."""
    rng = random.Random(epoch)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return [
        (
            rng.choice(KEYS[: 2 + 2 * epoch]),
            maybe(rng.randint(-5, 5)),
            maybe(rng.randint(-3, 3)),
            maybe(rng.choice([rng.randint(-8, 8) / 4, -0.0, 0.0])),
            maybe(Decimal(rng.randint(-9999, 9999)) / 1000),
            maybe(rng.choice(["", "x", "yy", "größe", "🦆"])),
            maybe(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randint(0, 10**7))),
            maybe(rng.random() < 0.5),
            maybe([maybe(rng.randint(0, 1)) for _ in range(rng.randint(0, 2))]),
        )
        for _ in range(0 if epoch == EMPTY else 40)
    ]


@dataclass(frozen=True)
class Oracle:
    """What batch Spark and plain Python say after each epoch: step, epoch -> results by key."""

    results: dict[tuple[str, int], Results]

    @classmethod
    def of(cls, spark: SparkSession) -> Oracle:
        results: dict[tuple[str, int], Results] = {}
        frames: list[DataFrame] = []
        for epoch in range(EPOCHS):
            if epoch == EMPTY:
                results.update({(step, epoch): results[step, epoch - 1] for step in steps()})
                continue
            frames.append(spark.createDataFrame(rows_of(epoch), SCHEMA).coalesce(1))
            # One partition, in order of arrival, so that first, last and lists are what they are in the stream.
            so_far = reduce(DataFrame.union, frames).coalesce(1)
            for step, aggregates in steps().items():
                if step != "folds":
                    results[step, epoch] = _in_batch(so_far, aggregates)
            results["folds", epoch] = _folded([row for e in range(epoch + 1) for row in rows_of(e)])
        return cls(results)


def _in_batch(rows: DataFrame, aggregates: dict[str, Any]) -> Results:
    """Distinct counts apart from the rest: the way Spark plans them changes the order of the rows."""
    asked = {name: F.expr(given) if isinstance(given, str) else given for name, given in aggregates.items()}
    distinct = [column.alias(name) for name, column in asked.items() if name.startswith("distinct")]
    others = [column.alias(name) for name, column in asked.items() if not name.startswith("distinct")]
    results = by_key(rows.groupBy("k").agg(*others).toArrow())
    if distinct:
        for key, found in by_key(rows.groupBy("k").agg(*distinct).toArrow()).items():
            results[key].update(found)
    return results


def _folded(rows: list[tuple[Any, ...]]) -> Results:
    folded = {}
    for key in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == key]
        longest, seen = "", [row[2] for row in mine]
        for row in mine:
            longest = max(longest, row[5] or "", key=len)
        text = f"{sum(row[1] or 0 for row in mine)} {seen[-3:]}"
        folded[key] = {"longest": longest, "range": text}
    return folded


def by_key(table: pa.Table) -> Results:
    found: Results = {}
    for row in table.to_pylist():
        key = row.pop("k")
        assert key not in found
        found[key] = {name: _comparable(name, value) for name, value in row.items()}
    return found


def _comparable(name: str, value: Any) -> Any:
    if name.startswith(("stddev", "variance", "spread")) and value is not None:
        return round(value, 9)
    # A set has no order.
    return hashable(sorted(value) if name.startswith("set") else value)


@pytest.fixture(scope="module")
def oracle(spark: SparkSession) -> Oracle:
    # Compiling queries that run once takes most of their time.
    with SessionConf(spark, {"spark.sql.codegen.wholeStage": "false"}):
        return Oracle.of(spark)


def check(step: str, epoch: int, found: pa.Table, oracle: Oracle, *, complete: bool) -> None:
    expected = oracle.results[step, epoch]
    if not complete:
        arrived = {row[0] for row in rows_of(epoch)}
        expected = {key: results for key, results in expected.items() if key in arrived}
    results = by_key(found)
    assert results.keys() == expected.keys()
    for key in expected:
        assert results[key] == expected[key], f"{step}, epoch {epoch}, key {key}"


@pytest.mark.parametrize("first", [True, False], ids=["aggregated before the exchange first", "row by row first"])
def test_every_aggregate(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], oracle: Oracle, first: bool
) -> None:
    events = inbox(SCHEMA)
    for epoch in range(EPOCHS):
        events.add(*rows_of(epoch))
    keyed, flows = events.source().key_by("k"), []
    sinks = {(step, mode): ms.sinks.memory() for step in steps() for mode in ("changed", "complete")}
    del sinks["columns", "complete"], sinks["folds", "changed"]
    for (step, mode), sink in sinks.items():
        aggregated = keyed.aggregate(f"{step}-{mode}", output_mode=mode, **steps()[step])  # type: ignore[arg-type]
        flows.append(aggregated.sink(f"{step}-{mode}-out", sink))
    # The state one way writes is what the other way reads.
    with preaggregated(lambda epoch: (epoch % 2 == 0) == first):
        run = run_available(ms.pipeline(*flows), spark, tmp_path / "chk")
    assert run.last_epoch == EPOCHS - 1
    for (step, mode), sink in sinks.items():
        complete = mode == "complete"
        with_rows = [epoch for epoch in range(EPOCHS) if complete or epoch != EMPTY]
        assert sorted(sink.epochs) == with_rows
        for epoch in with_rows:
            check(step, epoch, sink.epochs[epoch], oracle, complete=complete)
        # Asked for, the result of every key is there in either mode, at any retained epoch.
        check(step, EPOCHS - 1, run.read_result(f"{step}-{mode}"), oracle, complete=True)
        check(step, 1, run.read_result(f"{step}-{mode}", epoch=1), oracle, complete=True)


def test_results_go_on_after_a_restart(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], oracle: Oracle
) -> None:
    events = inbox(SCHEMA)
    sinks = {step: ms.sinks.memory() for step in ("per-row", "folds")}
    keyed = events.source().key_by("k")
    flow = ms.pipeline(
        *(keyed.aggregate(step, **steps()[step]).sink(f"{step}-out", sink) for step, sink in sinks.items())
    )
    for epochs in ((0, 1), (2,), (3,)):
        for epoch in epochs:
            events.add(*rows_of(epoch))
        run_available(flow, spark, tmp_path / "chk")
    for step, sink in sinks.items():
        check(step, EPOCHS - 1, sink.epochs[EPOCHS - 1], oracle, complete=False)


def test_the_way_is_chosen_by_the_reduction_seen(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events, rows = inbox("k bigint, v bigint"), 30_000
    for keys in (10, 10, rows, rows, 10):
        events.add(*((n % keys, 1) for n in range(rows)))
    counted = events.source().key_by("k").aggregate("counts", n=F.count("*"), s=F.sum("v"))
    run = run_available(counted.sink("out", ms.sinks.noop()), spark, tmp_path / "chk")
    metrics = [read_manifest(run._ledger.store, epoch).metrics["counts"] for epoch in range(5)]
    assert [found["rows"] for found in metrics] == [rows] * 5
    # The first is aggregated in part. What one epoch teaches the next one uses: few keys, again; many keys, not again.
    assert [found["arrived"] for found in metrics] == [10, 10, rows, rows, rows]
    assert [report.rows for report in run.epochs()] == [rows] * 5
    result = run.read_result("counts")
    assert result.num_rows == rows
    assert sum(result["n"].to_pylist()) == 5 * rows


@pytest.mark.parametrize("mode", ["changed", "complete"])
def test_the_schema_of_the_result_is_that_of_batch_spark(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], mode: str
) -> None:
    events = inbox(SCHEMA)
    events.add(*rows_of(1))
    asked = {**GROUPED, **PER_ROW}
    aggregated = events.source().key_by("k").aggregate("all", output_mode=mode, **asked)  # type: ignore[arg-type]
    seen: list[Any] = []
    rows = aggregated.transform("look", lambda df: seen.append(df.schema) or df)  # type: ignore[func-returns-value]
    run_available(rows.sink("out", ms.sinks.noop()), spark, tmp_path / "chk")
    batch = events.batch(spark).groupBy("k").agg(*(F.expr(str(sql)).alias(name) for name, sql in asked.items()))
    types = [[(field.name, field.dataType) for field in schema] for schema in (*seen, batch.schema)]
    assert all(found == types[-1] for found in types)
