"""Pipelines of a client of Spark Connect: the same steps and changes, without placement."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.connect.driver import WORKLOAD
from tests.connect.server import connect_server
from tests.engine.harness import files_of_epochs, latest
from tests.recovery.processes import Process, run_command, run_module, wait_until
from tests.servers import S3Server, s3_server

PROGRAM = """
import os
import midstream as ms
from pyspark.sql import functions as F

root = os.environ["COUNTING"]
events = ms.source("events", lambda spark: spark.readStream.schema("k bigint").json(root + "/in"))
flow = events.key_by("k").aggregate("counts", n=F.count("*")).sink("out", ms.sinks.parquet(root + "/out"))
"""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


def started(scenario: str, directory: Path, remote: str, checkpoint: str, options: dict[str, str]) -> Process:
    arguments = [scenario, str(directory), remote, checkpoint, json.dumps(options)]
    return run_module("tests.connect.driver", *arguments, log=directory / "driver.log")


def play(scenario: str, directory: Path, remote: str, store: S3Server | None = None) -> dict[str, Any]:
    checkpoint = store.url(scenario) if store else str(directory / "chk")
    process = started(scenario, directory, remote, checkpoint, store.options if store else {})
    assert process.wait(240) == 0, process.tail()
    told: dict[str, Any] = json.loads((directory / "result.json").read_text())
    assert told["left"] == []
    return told


@pytest.mark.timeout(300)
def test_a_pipeline_runs_and_changes_without_placement(tmp_path: Path, remote: str) -> None:
    told = play("living", tmp_path, remote)
    assert told["placement"] == {}
    assert told["executors"] == []
    why = "a server of Spark Connect places tasks by itself"
    assert told["migrate"].startswith("[NO_PLACEMENT]")
    assert why in told["migrate"]
    assert f"instances are not placed: {why}" in (tmp_path / "driver.log").read_text()
    assert "3 → 5 partitions" in told["verdict"]
    assert told["phases"] == ["waiting"] * 4
    assert told["partitions"] == 5
    assert "this function is broken" in told["broken"]
    assert told["hanging"].startswith("[CHANGE_REJECTED]")
    assert "did not end within 2 s" in told["hanging"]
    assert told["history"] == ["applied", "applied", "rejected", "rejected", "rolled_back"]
    assert told["status"] == "stopped"
    assert told["result"] == told["expected"]
    assert told["reports"] == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_with_state_in_an_object_store(tmp_path: Path, remote: str) -> None:
    with s3_server() as store:
        told = play("counting", tmp_path, remote, store)
    assert [epoch for epoch, _ in told["epochs"]] == [0, 1, 2]


@pytest.mark.timeout(300)
def test_aggregates_are_known_by_their_text(tmp_path: Path, remote: str) -> None:
    told = play("columns", tmp_path, remote)
    assert told["sql"] == [
        "count(*)",
        "count(*)",
        "count(DISTINCT a, v)",
        "sum(((v * 2) - 1.5D))",
        "avg(CAST(v AS decimal(10,2)))",
        "first(v, true)",
        "last(v)",
        "max(CASE WHEN (a == 'it\\'s') THEN v ELSE NULL END)",
        "min(upper(a))",
        "count(*) FILTER (WHERE (((v > 1) AND (NOT isNull(v))) OR (a IN ('x', 'y'))))",
        "sum(v) FILTER (WHERE a = 'x')",
        "stddev_samp(v)",
        "collect_list(a)",
    ]
    assert told["same"], "Spark takes the text for the same"
    assert told["refused"] == ["[UNKNOWN_AGGREGATE] ", "[NOT_ONE_AGGREGATE] ", "[EXPRESSION_NOT_SQL]"]


@pytest.mark.timeout(300)
def test_a_function_that_fails_is_named(tmp_path: Path, remote: str) -> None:
    told = play("failing", tmp_path, remote)
    assert told["status"] == "failed"
    assert "this function is broken" in told["error"]
    assert "driver.py" in told["error"], "where it was raised"


@pytest.mark.timeout(300)
def test_the_command_runs_a_pipeline_on_it(tmp_path: Path, remote: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("\n".join(json.dumps({"k": number % 3}) for number in range(10)))
    (tmp_path / "counting.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "midstream", "run", f"{tmp_path}/counting.py:flow", "--once", "--no-control"]
    where = {"COUNTING": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    arguments = ["--checkpoint", str(tmp_path / "chk"), "--remote", remote]
    process = run_command([*command, *arguments], tmp_path / "run.log", **where)
    assert process.wait(120) == 0, process.tail()
    counts = ds.dataset(tmp_path / "out", partitioning="hive").to_table().to_pylist()
    assert {row["k"]: row["n"] for row in counts} == {0: 4, 1: 3, 2: 3}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_client_that_is_killed_is_followed_by_another(tmp_path: Path, remote: str) -> None:
    reached = tmp_path / "reached"

    def files() -> list[range]:
        """Those of each epoch so far."""
        return files_of_epochs(tmp_path / "chk", int(reached.read_text() or -1) + 1 if reached.exists() else 0)

    for wanted in (6, 13, len(WORKLOAD)):
        process = started("forever", tmp_path, remote, str(tmp_path / "chk"), {})
        wait_until(lambda wanted=wanted: sum(map(len, files())) >= wanted, 120, f"{wanted} files are read")  # type: ignore[misc]
        process.kill_all()
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table().sort_by("epoch")
    found = {key: (row["n"], row["s"]) for key, row in latest(table.to_pylist(), "k").items()}
    expected: dict[int, tuple[int, float]] = {}
    for key, value, _ in chain.from_iterable(WORKLOAD):
        n, total = expected.get(key, (0, 0.0))
        expected[key] = n + 1, total + value
    assert found == expected
    expected_epochs = {epoch: len(keys_of(of_epoch)) for epoch, of_epoch in enumerate(files())}
    assert Counter(table.column("epoch").to_pylist()) == expected_epochs


def keys_of(files: range) -> set[int]:
    return {key for file in files for key, _, _ in WORKLOAD[file]}
