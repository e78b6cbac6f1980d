"""Driver programs whose tasks get into trouble: they need a Spark of their own, with retries or with executors.

`python -m tests.recovery.task_trouble <name> <directory> <master> <settings as json>`; each writes `result.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import midstream as ms
from midstream.state.compaction import CompactionPolicy
from tests.recovery.workload import session

KEYS, ROWS, EPOCHS = 40, 400, 3
STATE = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("total", pa.int64())])


def write_input(directory: Path) -> None:
    """One file an epoch: keys 0..39, each value once."""
    for epoch in range(EPOCHS):
        values = range(epoch * ROWS, (epoch + 1) * ROWS)
        file = directory / "in" / f"{epoch}.json"
        file.write_text("\n".join(json.dumps({"k": v % KEYS, "v": v}) for v in values))
        os.utime(file, (1_700_000_000 + epoch,) * 2)


def expected() -> dict[int, list[int]]:
    values = range(EPOCHS * ROWS)
    return {k: [len(mine := [v for v in values if v % KEYS == k]), sum(mine)] for k in range(KEYS)}


def first_time(marks: Path, name: str) -> bool:
    """Whether nobody has come by here before, in any process."""
    try:
        (marks / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def counting(trouble: Callable[[int], None]) -> Callable[..., Any]:
    """A stateful function that counts and sums, after some trouble that depends on the smallest value it sees."""
    schema = STATE

    def count(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        found = {row["k"]: [row["n"], row["total"]] for row in state.to_pylist()}
        for row in rows.to_pylist():
            entry = found.setdefault(row["k"], [0, 0])
            entry[0] += 1
            entry[1] += row["v"]
        trouble(min(rows.column("v").to_pylist()))
        table = pa.Table.from_pylist([{"k": k, "n": n, "total": t} for k, (n, t) in found.items()], schema)
        return table, table

    return count


def failing_once(marks: Path) -> Callable[[int], None]:
    def trouble(value: int) -> None:
        if first_time(marks, f"failed-{value}"):
            raise ConnectionError("the first attempt always fails")

    return trouble


def dying_once(marks: Path) -> Callable[[int], None]:
    def trouble(value: int) -> None:
        if ROWS <= value < 2 * ROWS and first_time(marks, "died"):
            os.kill(os.getpid(), signal.SIGKILL)

    return trouble


def losing_executors_and_dawdling(marks: Path) -> Callable[[int], None]:
    """In the second epoch an executor dies, with map output that other tasks still have to read. In the third an
    attempt dawdles until another one has long overtaken it."""

    def trouble(value: int) -> None:
        epoch = value // ROWS
        if epoch == 1 and first_time(marks, "lost"):
            # The worker is a child of the daemon, which is a child of the executor.
            status = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(60)
        if epoch == 2 and first_time(marks, "slow"):
            time.sleep(30)
            (marks / "slow attempt came to its end").touch()

    return trouble


TROUBLES = {f.__name__: f for f in (failing_once, dying_once, losing_executors_and_dawdling)}


def main(name: str, directory: Path, master: str, settings: dict[str, str]) -> None:
    spark = session(master, settings)
    marks = directory / "marks"
    run = flow(spark, directory, TROUBLES[name](marks)).start(spark, str(directory / "chk"))
    run.process_available()
    state = {row["k"]: [row["n"], row["total"]] for row in run.read_state("count").to_pylist()}
    second = {row["half"]: list(row.values())[-1] for row in run.read_state("halves").to_pylist()}
    run.stop()
    (directory / "result.json").write_text(json.dumps({"state": list(state.items()), "halves": list(second.items())}))
    spark.stop()


def flow(spark: SparkSession, directory: Path, trouble: Callable[[int], None]) -> ms.Pipeline:
    """Two keyed steps after each other, so that the first one's tasks feed a shuffle."""
    policy = CompactionPolicy(deltas=2)
    source = ms.source(
        "in",
        lambda spark: (
            spark.readStream.schema("k bigint, v bigint").option("maxFilesPerTrigger", 1).json(str(directory / "in"))
        ),
    )
    counted = source.key_by("k").stateful(
        "count",
        counting(trouble),
        state="n bigint, total bigint",
        output="k bigint, n bigint, total bigint",
        parallelism=2,
        compaction=policy,
    )
    halves = counted.transform("half", lambda df: df.selectExpr("k % 2 AS half", "n"))
    per_half = halves.key_by("half").aggregate("halves", rows="count(*)", parallelism=2, compaction=policy)
    return ms.pipeline(
        counted.sink("out", ms.sinks.parquet(directory / "out")),
        per_half.sink("halves_out", ms.sinks.noop()),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
