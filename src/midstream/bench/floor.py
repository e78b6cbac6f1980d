"""The least an epoch costs: a keyed step with state against a plain `foreachBatch` with a shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.bench.contender import Running
from midstream.bench.environment import Environment
from midstream.bench.ours import Midstream, by_aggregate, by_function
from midstream.bench.report import Report, at_most
from midstream.bench.rounds import take_turns
from midstream.bench.session import CORES
from midstream.bench.timing import QueryProgress
from midstream.bench.trial import measurement, one_more_epoch
from midstream.bench.window import Window
from midstream.bench.workload import Workload, random_keys
from midstream.errors import MidstreamError

PLAIN = "spark-foreach-batch"


@dataclass(frozen=True)
class FloorOptions:
    rows_per_epoch: int = 1_000
    keys: int = 10_000
    rounds: int = 4
    epochs: int = 30
    warmup_epochs: int = 40
    aggregate: bool = False
    judged: bool = True


QUICK = FloorOptions(rows_per_epoch=100, keys=100, rounds=2, epochs=3, warmup_epochs=2, judged=False)


def floor(options: FloorOptions, environment: Environment) -> Report:
    ours = Midstream(by_aggregate if options.aggregate else by_function)
    workload = random_keys(options.keys, options.rows_per_epoch)
    with environment.session("floor") as (spark, directory):
        # A session of its own: settings that midstream makes in its session are not the defaults.
        plain = spark.newSession()
        rows = options.rows_per_epoch
        starts: dict[str, Callable[[], Running]] = {
            ours.name: lambda: ours.start(spark, workload, directory, rows_per_epoch=rows, once=False),
            PLAIN: lambda: start_plain(plain, workload, directory / "plain"),
        }
        rounds = take_turns(
            starts,
            options.rounds,
            first=Window(options.warmup_epochs, 0, options.epochs, 0),
            later=Window(min(5, options.warmup_epochs), 0, options.epochs, 0),
            progress=environment.progress,
        )
        mine = replace(
            measurement(workload, rounds[ours.name]),
            correct=one_more_epoch(spark, ours, workload, directory, environment.progress).correct,
        )
        theirs = measurement(workload, rounds[PLAIN])
        machine = environment.machine(spark)
    ratio = mine.epoch_p50_ms / theirs.epoch_p50_ms
    name = f"epoch p50 vs {PLAIN}"
    ratios = {name: ratio}
    if mine.wall_p50_ms and theirs.wall_p50_ms:
        ratios[f"wall clock p50 vs {PLAIN}"] = mine.wall_p50_ms / theirs.wall_p50_ms
    return Report(
        bench="floor",
        machine=machine,
        ours={ours.name: mine},
        peers={PLAIN: theirs},
        ratios=ratios,
        targets=(at_most(name, ratio, 0.65),) if options.judged else (),
    )


class PlainRunning:
    name = PLAIN

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self.progress = QueryProgress(query)

    def failure(self) -> BaseException | None:
        if self._query.isActive:
            return None
        return self._query.exception() or MidstreamError("QUERY_ENDED", f"{self.name} has ended.")

    def stop(self) -> None:
        self._query.stop()


def start_plain(spark: SparkSession, workload: Workload, checkpoint: Path) -> PlainRunning:
    def epoch(batch: DataFrame, _: int) -> None:
        shuffled = workload.with_key(batch).repartition(CORES, "key")
        shuffled.mapInArrow(identity, "key bigint").write.format("noop").mode("overwrite").save()

    writer = workload.stream(spark).writeStream.foreachBatch(epoch)
    return PlainRunning(writer.option("checkpointLocation", str(checkpoint)).start())


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
