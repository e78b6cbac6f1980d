"""A program that runs a pipeline through Spark Connect, of which PySpark is a client for a whole process or not at all.

`python -m tests.connect.driver <scenario> <directory> <remote> <checkpoint> <store options as json>`
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.client import SparkConnectClient

import midstream as ms
from midstream.engine.columns import to_spec
from midstream.engine.run import Run
from midstream.errors import MidstreamError
from tests.engine.harness import Inbox, latest
from tests.recovery.processes import wait_until

KEYS = 20
NEWCOMER = 777
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = "k bigint, v double, at timestamp"
WORKLOAD = [[(key, float(number), NOON) for key in range(number % 5, 30)] for number in range(24)]
"""Rows by epoch, for a pipeline that is killed now and then."""


def largest(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The largest value of each key so far."""
    seen = pa.concat_tables([state, rows.select(["k", "v"]).rename_columns(["k", "most"])])
    best = seen.group_by("k").aggregate([("most", "max")]).rename_columns(["k", "most"])
    return best, best


def broken(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    raise ValueError("this function is broken")


def hanging(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    time.sleep(120)
    return largest(rows, state)


def fails_later(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Good for the rows of the last epoch, not for those of the next."""
    if NEWCOMER in rows.column("k").to_pylist():
        raise ValueError("an unknown key")
    return largest(rows, state)


@dataclass
class Oracle:
    """What the steps should have given."""

    threshold: float = 0.0
    totals: dict[int, tuple[int, float]] = field(default_factory=dict)
    largest: dict[int, float] = field(default_factory=dict)
    minutes: dict[tuple[int, datetime], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, rows: list[tuple[int, float, datetime]]) -> None:
        for key, value, at in rows:
            if value > self.threshold:
                n, total = self.totals.get(key, (0, 0.0))
                self.totals[key] = n + 1, total + value * 2 + 1
                self.largest[key] = max(value, self.largest.get(key, value))
                self.minutes[key, at.replace(second=0, microsecond=0)] += 1

    def closed(self, watermark: datetime) -> dict[tuple[int, datetime], int]:
        return {at: n for at, n in self.minutes.items() if at[1] + timedelta(minutes=1) <= watermark}


@dataclass
class Scene:
    """A pipeline of several kinds of steps, and what it should have given so far."""

    spark: SparkSession
    root: Path
    checkpoint: str
    options: dict[str, str]
    oracle: Oracle = field(default_factory=Oracle)
    sinks: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    epochs: int = 0

    def start(self) -> Run:
        self.sinks = {name: self.sinks.get(name) or ms.sinks.memory() for name in ("totals", "largest", "minutes")}
        inbox = self.inbox
        events = ms.source(
            "events",
            lambda spark: spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(inbox.directory)),
            event_time="at",
            delay="0 seconds",
        )
        clean = events.sql("clean", "SELECT * FROM input WHERE v > 0")
        twice = clean.sql("twice", "SELECT k, at, v * 2 AS v FROM input")
        totals = twice.key_by("k").aggregate(
            "totals", parallelism=3, n=F.count("*"), total=F.sum(F.col("v") + 1), most="max(v) FILTER (WHERE v < 1000)"
        )
        best = clean.key_by("k").stateful("largest", largest, state="most double", output="k bigint, most double")
        minutes = twice.key_by("k").window(ms.tumbling("1 minute")).aggregate("minutes", n=F.count("*"))
        flow = ms.pipeline(
            totals.sink("out", self.sinks["totals"]),
            best.sink("best", self.sinks["largest"]),
            minutes.sink("closed", self.sinks["minutes"]),
        )
        return flow.start(self.spark, self.checkpoint, store_options=self.options)

    @property
    def inbox(self) -> Inbox:
        (self.root / "in").mkdir(exist_ok=True)
        return Inbox(self.root / "in", SCHEMA)

    def epoch(self, run: Run, *more: int) -> None:
        """One more epoch, after which every sink has what the oracle says."""
        at = NOON + timedelta(seconds=25 * self.epochs)
        rows = [(key, float((key * 7 + self.epochs) % 30 - 3), at) for key in (*range(KEYS), *more)]
        self.inbox.add(*rows)
        self.oracle.add(rows)
        run.process_available()
        self.epochs += 1
        totals = latest(self.sinks["totals"].to_pylist(), "k")
        assert {k: (row["n"], row["total"]) for k, row in totals.items()} == self.oracle.totals
        best = latest(self.sinks["largest"].to_pylist(), "k")
        assert {k: row["most"] for k, row in best.items()} == self.oracle.largest
        minutes = {(row["k"], row["window_start"]): row["n"] for row in self.sinks["minutes"].to_pylist()}
        assert minutes == self.oracle.closed(at), (minutes, self.oracle.closed(at))

    def change(self, run: Run, change: Any, **options: Any) -> str:
        return self.settled(run, run.apply(change, wait=False, **options).id)

    def settled(self, run: Run, id_: int) -> str:
        """The phase of a change once it waits for an epoch, or has ended."""
        while (now := run.modification(id_)).is_under_way and str(now.phase) != "waiting":
            time.sleep(0.01)
        return str(now.phase)


def living(scene: Scene) -> None:
    """Epochs, changes of every kind, and a restart."""
    told, run = scene.told, scene.start()
    for _ in range(4):
        scene.epoch(run)
    told["placement"], told["executors"] = run.placement(), run.executors()
    told["migrate"] = _error(lambda: run.plan(ms.Migrate("totals", "1")))
    told["verdict"] = str(run.plan(ms.Rescale("totals", 5)))
    told["phases"] = [scene.change(run, ms.Rescale("totals", 5))]
    scene.epoch(run)
    told["partitions"] = len(run.manifest().steps["totals"].ranges)
    told["phases"].append(scene.change(run, ms.Replace("clean", sql="SELECT * FROM input WHERE v > 10")))
    scene.oracle.threshold = 10.0
    scene.epoch(run)
    told["broken"] = _error(lambda: run.apply(ms.Replace("largest", broken), timeout=60))
    told["hanging"] = _error(lambda: run.apply(ms.Replace("largest", hanging), timeout=60, time_limit=2))
    told["phases"].append(scene.change(run, ms.Replace("largest", fails_later)))
    scene.epoch(run, NEWCOMER)
    told["history"] = [str(entry.modification.phase) for entry in run.history()]
    told["phases"].append(scene.settled(run, run.undo(2, wait=False).id))
    scene.oracle.threshold = 0.0
    scene.epoch(run)
    run.stop()
    told["status"] = run.status
    run = scene.start()
    for _ in range(2):
        scene.epoch(run)
    told["result"] = sorted((row["k"], row["n"]) for row in run.read_result("totals").to_pylist())
    told["expected"] = sorted((key, n) for key, (n, _) in scene.oracle.totals.items())
    run.stop()
    wait_until(lambda: not list((Path(scene.checkpoint) / "spark").glob(".midstream-*")), 10, "offers are cleared away")
    told["reports"] = sorted(path.name for path in (Path(scene.checkpoint) / "reports").rglob("*") if path.is_file())


def counting(scene: Scene) -> None:
    """A few epochs."""
    run = scene.start()
    for _ in range(3):
        scene.epoch(run)
    scene.told["epochs"] = [(report.epoch, report.rows) for report in run.epochs()]
    run.stop()


def columns(scene: Scene) -> None:
    """Aggregates as users write them, as the text by which their state is known."""
    value = F.col("v")
    written = [
        F.count("*"),
        F.count(F.lit(1)),
        F.count_distinct("a", value),
        F.sum(value * 2 - F.lit(1.5)),
        F.avg(value.cast("decimal(10,2)")).alias("x"),
        F.first("v", ignorenulls=True),
        F.last("v"),
        F.max(F.when(F.col("a") == "it's", value).otherwise(F.lit(None))),
        F.min(F.upper("a")),
        F.count_if((value > 1) & ~value.isNull() | F.col("a").isin("x", "y")),
        F.expr("sum(v) FILTER (WHERE a = 'x')"),
        F.stddev("v"),
        F.collect_list("a"),
    ]
    spark = scene.spark
    scene.told["sql"] = [to_spec("n", column, spark).sql for column in written]
    rows = spark.createDataFrame([("x", 2.0), ("it's", 3.0)], "a string, v double")
    asked = rows.selectExpr(*scene.told["sql"][:-1]).collect()[0]
    meant = rows.select(*written[:-1]).collect()[0]
    scene.told["same"] = list(asked) == list(meant)
    refused = [value + 1, F.sum("v") + 1, F.sum(F.transform("a", lambda x: x))]
    scene.told["refused"] = [_error(lambda given=given: to_spec("n", given, spark))[:20] for given in refused]  # type: ignore[misc]


def failing(scene: Scene) -> None:
    """A function that fails in the pipeline as it was written."""
    scene.inbox.add((1, 1.0, NOON))
    events = scene.inbox.source()
    bad = events.key_by("k").stateful("bad", broken, state="most double", output="k bigint, most double")
    run = bad.sink("out", ms.sinks.noop()).start(scene.spark, scene.checkpoint)
    scene.told["error"] = _error(lambda: run.await_termination(120))
    scene.told["status"] = run.status


def forever(scene: Scene) -> None:
    """Counts the workload into files until it is killed, and tells after each epoch how far it is."""
    inbox = scene.inbox
    if not any(inbox.directory.iterdir()):
        for rows in WORKLOAD:
            inbox.add(*rows)
    counted = inbox.source().key_by("k").aggregate("counts", n=F.count("*"), s=F.sum("v"))
    run = counted.sink("out", ms.sinks.parquet(str(scene.root / "out"))).start(scene.spark, scene.checkpoint)
    run.on_epoch(lambda report: (scene.root / "reached").write_text(str(report.epoch)))  # type: ignore[func-returns-value]
    run.await_termination(300)


def _error(call: Callable[[], object]) -> str:
    try:
        return f"no error: {call()}"
    except MidstreamError as error:
        return str(error)


def _left(spark: SparkSession) -> list[str]:
    """Threads that may ask the server for something, and open connections to it, but that of the session itself. A
    process that ends with them now and then does not end."""
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("midstream-")]
    clients = (thing for thing in gc.get_objects() if isinstance(thing, SparkConnectClient) and not thing.is_closed)
    return threads + [str(client) for client in clients if client is not cast(Any, spark).client]


SCENARIOS = {scenario.__name__: scenario for scenario in (living, counting, columns, failing, forever)}


def main(scenario: str, root: Path, remote: str, checkpoint: str, options: dict[str, str]) -> None:
    logging.basicConfig(level=logging.INFO)
    scene = Scene(SparkSession.builder.remote(remote).getOrCreate(), root, checkpoint, options)
    SCENARIOS[scenario](scene)
    scene.told["left"] = _left(scene.spark)
    (root / "result.json").write_text(json.dumps(scene.told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], json.loads(sys.argv[5]))
