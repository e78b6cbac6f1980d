"""The queries of NEXMark, each compared row by row with DuckDB over the same events."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.nexmark.events import Nexmark
from midstream.nexmark.oracle import Oracle
from midstream.nexmark.queries import QUERIES, events
from midstream.nexmark.streams import generated
from tests.engine.harness import run_available

EVENTS, RATE = 12_000, 200
OPTIONS = {"rate": RATE, "events": EVENTS, "events_per_epoch": 5_000, "partitions": 2}
SHORT = ("q5", "q8", "q12")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(Nexmark(rate=RATE), EVENTS)


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in QUERIES]
)
def test_as_duckdb_has_it(spark: SparkSession, tmp_path: Path, oracle: Oracle, name: str) -> None:
    query, out = QUERIES[name], tmp_path / "out"
    flow = query.build(events(generated(OPTIONS), RATE, query.more)).sink("out", ms.sinks.parquet(out))
    run = run_available(flow, spark, tmp_path / "chk")
    assert len(run.epochs()) == 3 or name == "q12", "only the clock brings epochs without rows"
    assert oracle.rows(query), "there is something to compare"
    assert oracle.differences(query, out) == []


def test_a_difference_is_told(oracle: Oracle) -> None:
    query = QUERIES["q2"]
    bids = Nexmark(rate=RATE).table("bid", 0, EVENTS)
    right = pa.table({"auction": bids["auction"], "price": bids["price"]})
    right = right.filter([auction % 123 == 0 for auction in right["auction"].to_pylist()])
    right = right.append_column("epoch", pa.array([0] * right.num_rows))
    assert oracle.differences(query, right) == []
    assert "missing in the result" in oracle.differences(query, right.slice(1))[0]
    twice = pa.concat_tables([right, right.slice(0, 1)])
    assert oracle.differences(query, twice)[0].startswith("1 rows only in the result")
