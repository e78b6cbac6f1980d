"""The command against a real pipeline: run by `midstream run`, looked at, changed and stopped by the others.

One pipeline for all tests of this file, which are a story: they run in the order they stand in.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from midstream.cli.exits import Exit
from tests.cli.conftest import Command, Done

APP = """\
import midstream as ms
from pyspark.sql import functions as F


def numbers(spark):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()


clean = ms.source("numbers", numbers).sql("clean", "SELECT value % 10 AS key, 1 AS v FROM input")
totals = clean.key_by("key").aggregate("totals", n=F.count("*"), total=F.sum("v"), parallelism=2)
flow = totals.sink("out", ms.sinks.noop())
"""
FIXES = """\
def clean(numbers):
    return numbers.selectExpr("value % 10 AS key", "2 AS v")
"""
CHANGES = """\
changes:
  - replace: clean
    with: fixes.py:clean
  - insert: even
    after: clean
    sql: SELECT * FROM input WHERE key % 2 = 0
  - rescale: totals
    to: 4
"""
RUN = [sys.executable, "-m", "midstream", "run", "app.py:flow", "--name", "orders", "--trigger-seconds", "0.2"]
SPARK = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]


@dataclass(frozen=True)
class Running:
    directory: Path
    process: subprocess.Popen[bytes]

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    @property
    def run_file(self) -> dict[str, str]:
        return dict(json.loads((self.home / "runs" / "orders.json").read_text()))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("orders")
    for name, text in (("app.py", APP), ("fixes.py", FIXES), ("changes.yaml", CHANGES)):
        (directory / name).write_text(text)
    environment = {**os.environ, "MIDSTREAM_HOME": str(directory / "home"), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*RUN, "--checkpoint", "checkpoint", *SPARK],
            cwd=directory,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        started = Running(directory, process)
        try:
            _wait_for_epochs(started)
            yield started
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_epochs(started: Running, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    manifests = started.checkpoint / "manifests"
    while not (manifests.is_dir() and len(list(manifests.iterdir())) > 3 and (started.home / "runs").is_dir()):
        assert started.process.poll() is None, started.log
        assert time.monotonic() < deadline, started.log
        time.sleep(0.1)


@pytest.fixture
def orders(running: Running, midstream: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, in the directory and home of the pipeline."""
    monkeypatch.setenv("MIDSTREAM_HOME", str(running.home))
    monkeypatch.setenv("MIDSTREAM_TIMEOUT", "90")
    monkeypatch.chdir(running.directory)
    return midstream


def good(done: Done) -> Done:
    assert done.code == 0, done.err + done.out
    return done


def test_it_is_listed_and_looked_at(running: Running, orders: Command) -> None:
    environment = {**os.environ, "MIDSTREAM_HOME": str(running.home)}
    listed = subprocess.run([sys.executable, "-m", "midstream", "ls"], env=environment, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[:2] for line in listed.stdout.splitlines()] == [["name", "status"], ["orders", "running"]]

    status = good(orders("status", "orders", "-o", "json")).json
    assert (status["name"], status["status"], status["plan"]) == ("orders", "running", status["plan"])
    assert status["role"] == "operator"
    assert "rows/s" in good(orders("status", "orders")).out


def test_its_graph_is_drawn(orders: Command) -> None:
    drawn = good(orders("graph", "orders")).out

    assert "│ numbers" in drawn
    assert "├──▶│ totals" in drawn
    assert "aggregate ×2" in drawn
    steps = good(orders("graph", "orders", "-o", "json")).json["steps"]
    assert [step["id"] for step in steps] == ["numbers", "clean", "totals", "out"]


def test_a_change_is_planned_and_nothing_done(orders: Command) -> None:
    planned = good(orders("plan", "orders", "rescale", "totals", "4")).out

    assert "~ totals [aggregate]" in planned
    assert "2 → 4 partitions" in planned
    assert good(orders("apply", "orders", "rescale", "totals", "4", "--dry-run", "-o", "json")).json["steps"]
    assert orders("history", "orders").out == ""


def test_a_file_of_changes_is_applied(orders: Command) -> None:
    applied = good(orders("apply", "orders", "changes.yaml", "--id", "first"))

    assert "change 1 applied in epoch" in applied.out
    assert "perform" in applied.out
    drawn = good(orders("graph", "orders")).out
    assert "even" in drawn
    assert "aggregate ×4" in drawn
    again = good(orders("apply", "orders", "--file", "changes.yaml", "--id", "first", "-o", "json")).json
    assert (again["id"], again["phase"], again["client_id"]) == (1, "applied", "first")


def test_steps_are_inserted_and_rescaled_and_changes_undone(orders: Command) -> None:
    good(orders("apply", "orders", "insert", "small", "--after", "even", "--sql", "SELECT * FROM input WHERE key < 5"))
    rescaled = good(orders("apply", "orders", "rescale", "totals", "3", "-o", "json")).json
    assert rescaled["phase"] == "applied"
    good(orders("undo", "orders", str(rescaled["id"])))

    history = good(orders("history", "orders", "-o", "json")).json
    assert [change["phase"] for change in history] == ["applied", "applied", "undone", "applied"]
    assert history[0]["sources"][0]["text"].strip() == FIXES.strip()
    assert "operator" in history[0]["by"]
    assert "rescale totals to 3" in good(orders("history", "orders", "--code")).out


def test_bad_changes_are_rejected(orders: Command) -> None:
    unknown = orders("apply", "orders", "remove", "nothing")
    assert unknown.code == Exit.REJECTED
    assert "[UNKNOWN_STEP]" in unknown.err
    bad = orders("apply", "orders", "replace", "even", "--sql", "SELECT nonsense FROM input")
    assert bad.code == Exit.REJECTED
    assert "nonsense" in bad.err
    lost = orders("plan", "orders", "replace", "totals", "--aggregate", "n=count(*)", "--key-by", "v")
    assert "LOSES STATE" in lost.out or lost.code == Exit.REJECTED


def test_readers_may_only_look(running: Running, orders: Command) -> None:
    token = running.run_file["reader_token"]

    assert orders("status", "orders", "--token", token, "-o", "json").json["role"] == "reader"
    assert orders("apply", "orders", "remove", "small", "--token", token).code == Exit.NOT_ALLOWED
    assert orders("status", "orders", "--token", "wrong").code == Exit.NOT_ALLOWED


def test_a_change_is_tried_as_a_shadow_and_promoted(orders: Command) -> None:
    tried = good(
        orders("shadow", "orders", "replace", "small", "--sql", "SELECT * FROM input WHERE key < 3", "--epochs", "2")
    )
    assert "output out" in tried.out
    assert good(orders("shadow", "orders", "--status", "-o", "json")).json[0]["epochs"] >= 2
    good(orders("promote", "orders"))
    assert "no shadow" in good(orders("shadow", "orders")).out
    assert orders("promote", "orders").code == Exit.ERROR


def test_it_is_watched(orders: Command) -> None:
    watched = good(orders("watch", "orders", "--epochs", "3")).out.splitlines()

    assert len(watched) == 3
    assert all("rows/s" in line for line in watched)
    epochs = [
        json.loads(line)["epoch"]
        for line in good(orders("watch", "orders", "--epochs", "2", "-o", "json")).out.splitlines()
    ]
    assert epochs[1] == epochs[0] + 1


def test_its_state_is_read(orders: Command, tmp_path: Path) -> None:
    tables = good(orders("state", "orders", "-o", "json")).json
    assert [table["step"] for table in tables["tables"]] == ["totals"]
    found = good(orders("state", "orders", "totals", "--where", "key=4", "-o", "json")).json
    assert (found["matched"], found["keys"]) == (1, ["key"])
    assert good(orders("state", "orders", "totals", "--count")).out.strip() == "10"
    first = good(orders("state", "orders", "totals", "--epoch", str(tables["epochs"][0]), "-o", "json")).json
    assert first["epoch"] == tables["epochs"][0]
    file = tmp_path / "totals.parquet"
    good(orders("state", "orders", "totals", "--export", str(file)))
    assert pq.read_table(file).num_rows == 10
    assert orders("state", "orders", "nothing").code == Exit.ERROR
    assert "customer" in orders("state", "orders", "totals", "--where", "customer=4").err


def test_it_is_stopped_and_its_state_still_readable(running: Running, orders: Command, tmp_path: Path) -> None:
    assert "has stopped" in good(orders("stop", "orders")).out
    assert running.process.wait(timeout=60) == 0, running.log

    assert orders("status", "orders").code == Exit.UNREACHABLE
    assert good(orders("ls")).out == ""
    checkpoint = ("--checkpoint", str(running.checkpoint))
    assert "totals" in good(orders("state", *checkpoint)).out
    assert good(orders("state", *checkpoint, "totals", "--count")).out.strip() == "10"
    found = good(orders("state", *checkpoint, "totals", "--where", "key=4", "-o", "json")).json
    assert found["columns"][0] == "key"
    file = tmp_path / "totals.parquet"
    good(orders("state", *checkpoint, "totals", "--export", str(file), "--where", "key=4"))
    assert pq.read_table(file).num_rows == 1
    assert orders("state", "--checkpoint", str(tmp_path / "nowhere")).code == Exit.ERROR
