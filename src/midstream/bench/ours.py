"""midstream as a contender: the same counts by its aggregate and by a user function on tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.bench.session import CORES
from midstream.bench.timing import QueryProgress, StateSize
from midstream.bench.workload import Workload
from midstream.engine.epochs import EpochReport
from midstream.engine.run import Run


def by_aggregate(keyed: ms.KeyedStream, instances: int = CORES) -> ms.Stream:
    return keyed.aggregate("counts", n=F.count("*"), parallelism=instances)


def by_function(keyed: ms.KeyedStream, instances: int = CORES) -> ms.Stream:
    return keyed.stateful("counts", count_rows, state="n bigint", output="key bigint, n bigint", parallelism=instances)


def count_rows(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    ones = pa.table({"key": rows["key"], "n": pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)})
    counted = pa.concat_tables([ones, state.select(["key", "n"])]).group_by("key").aggregate([("n", "sum")])
    counts = pa.table({"key": counted["key"], "n": counted["n_sum"]})
    return counts, counts


@dataclass(frozen=True)
class Midstream:
    count: Callable[[ms.KeyedStream], ms.Stream] = by_aggregate
    name: str = "midstream"
    conf: Mapping[str, str] = field(default_factory=dict)
    changeable: bool = True
    every_seconds: float = 0
    """Seconds between two epochs when the load is steady; 0 for as fast as it goes."""
    checkpoint: str | None = None
    """Where it is, unless in the directory given to `start`."""
    store_options: Mapping[str, str] = field(default_factory=dict)

    def start(
        self, spark: SparkSession, workload: Workload, directory: Path, *, rows_per_epoch: int, once: bool
    ) -> MidstreamRunning:
        values = ms.source("values", lambda spark: workload.stream(spark, rows_per_epoch))
        flow = self.count(values.transform("keys", workload.with_key).key_by("key")).sink("out", ms.sinks.noop())
        paced = {"processingTime": f"{round(self.every_seconds * 1000)} milliseconds"} if self.every_seconds else None
        trigger = {"availableNow": True} if once else paced
        run = flow.start(
            spark,
            checkpoint=self.checkpoint or str(directory / "checkpoint"),
            trigger=trigger,
            changeable=self.changeable,
            store_options=self.store_options or None,
        )
        return MidstreamRunning(self.name, run, rows_per_epoch)


class MidstreamRunning:
    def __init__(self, name: str, run: Run, rows_per_epoch: int) -> None:
        self.name = name
        self.run = run
        self._rows_per_epoch = rows_per_epoch
        self.progress = QueryProgress(run.query)

    def failure(self) -> BaseException | None:
        return failure_of(self.run)

    def wait(self) -> None:
        self.run.await_termination(None)
        if self.run.exception is not None:
            raise self.run.exception

    def stop(self) -> None:
        self.run.stop()

    def state_size(self) -> StateSize:
        last = self.run.epochs()[-1]
        return StateSize(last.state_rows, last.state_bytes)

    def rows_committed(self) -> int:
        return self.progress.rows_until(self.run.epochs()[-1].epoch, self._rows_per_epoch)

    def counts(self) -> pa.Table:
        # The state of an aggregate goes by the SQL of what is kept, here count(1).
        return self.run.read_state("counts").rename_columns(["key", "n"])


def failure_of(run: Run) -> BaseException | None:
    """Why a run that should go on does not."""
    if run.status in ("starting", "running"):
        return None
    return run.exception or ms.MidstreamError("QUERY_ENDED", f"The run is {run.status}.")


def wait_for(run: Run, reports: Sequence[EpochReport], more: int) -> None:
    """Wait until there are so many more reports. Raises what the run failed with."""
    wanted = len(reports) + more
    while len(reports) < wanted:
        if (failure := failure_of(run)) is not None:
            raise failure
        time.sleep(0.02)
