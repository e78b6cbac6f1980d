"""Rows with what a table has for their key at the moment they come."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from tests.engine.harness import run_available
from tests.eventtime.test_windows import Inboxes


@pytest.mark.parametrize("how", ["left", "inner"])
def test_the_latest_row_of_the_table(spark: SparkSession, tmp_path: Path, inbox: Inboxes, how: str) -> None:
    orders, rates, sink = (
        inbox("k string, v bigint", "orders"),
        inbox("k string, rate double", "rates"),
        ms.sinks.memory(),
    )
    orders.add(("a", 1), ("b", 2), (None, 3))
    rates.add(("a", 0.5), ("a", 0.7))
    orders.add(("a", 4), ("b", 5))
    rates.add((None, 0.1), ("b", 0.2))
    orders.add(("a", 6), (None, 7))
    rates.add()
    looked_up = orders.source("orders").lookup("rated", rates.source("rates"), "k", how=how, parallelism=2)
    run = run_available(looked_up.sink("out", sink), spark, tmp_path / "chk")
    everything = {
        0: [("a", 1, 0.7), ("b", 2, None), (None, 3, None)],
        1: [("a", 4, 0.7), ("b", 5, 0.2)],
        2: [("a", 6, 0.7), (None, 7, 0.1)],
    }
    for epoch, rows in everything.items():
        wanted = [row for row in rows if how == "left" or row[2] is not None]
        assert sorted(map(repr, (tuple(r.values()) for r in sink.epochs[epoch].to_pylist()))) == sorted(
            map(repr, wanted)
        )
    assert run.read_state("rated").num_rows == run.epochs()[-1].steps["rated"].state_rows == 3
