"""One key with most of the rows: ranges cut by heat leave it to one instance, parts of it go to several.

Distinct values are counted, which no aggregation before the exchange makes fewer: the instance of the hot key gets all
of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.bench.balance import MOST_SPREAD, figures_of
from midstream.bench.environment import Environment
from midstream.bench.executors import executors
from midstream.bench.ours import wait_for
from midstream.bench.report import Measurement, Report, at_most
from midstream.bench.session import CORES
from midstream.bench.verify import same_counts
from midstream.bench.workload import Workload, hot_key
from midstream.engine.epochs import EpochReport
from midstream.engine.run import Run

_CUT, _PARTS = "ranges by heat", "hot key in parts"


@dataclass(frozen=True)
class HotKeyOptions:
    keys: int = 100_000
    rows_per_epoch: int = 1_000_000
    share: float = 0.8
    """Of all rows that one key has."""
    values: int = 2_000_000
    """Of which distinct ones are counted."""
    instances: int = 8
    executors: int = CORES
    epochs: int = 20
    warmup_epochs: int = 8
    judged: bool = True

    @property
    def workload(self) -> Workload:
        return hot_key(self.keys, self.rows_per_epoch, self.share)

    def rows(self, values: DataFrame) -> DataFrame:
        key = f"{self.workload.key_sql} AS key"
        return values.selectExpr(key, f"pmod(xxhash64(value, 3), {self.values}L) AS v")


QUICK = HotKeyOptions(
    keys=500, rows_per_epoch=10_000, values=5_000, instances=4, epochs=3, warmup_epochs=2, judged=False
)


def hotkey(options: HotKeyOptions, environment: Environment) -> Report:
    measured: dict[str, Measurement] = {}
    progress = environment.progress
    with executors(environment, "hotkey", options.executors) as (spark, directory):
        machine = environment.machine(spark)
        run = _flow(options).start(spark, str(directory / "checkpoint"))
        reports: list[EpochReport] = []
        run.on_epoch(reports.append)
        try:
            wait_for(run, reports, options.warmup_epochs)
            for name, split in ((_CUT, None), (_PARTS, True)):
                progress.phase(f"{name}: warming up")
                run.apply(ms.Rebalance("values", split=split), timeout=300)
                wait_for(run, reports, options.warmup_epochs)
                progress.phase(f"{name}: measuring")
                first = len(reports)
                wait_for(run, reports, options.epochs)
                measured[name] = figures_of(reports[first:], "values", options.keys, options.rows_per_epoch)
        finally:
            run.stop()
        progress.phase("comparing with a batch computation")
        correct = _is_right(spark, options, run, directory)
    measured = {name: replace(figures, correct=correct) for name, figures in measured.items()}
    ratios = {f"slowest vs median instance, {name}": m.balance.spread for name, m in measured.items() if m.balance}
    ratios["rows/s with parts vs without"] = measured[_PARTS].rows_per_second / measured[_CUT].rows_per_second
    spread = f"slowest vs median instance, {_PARTS}"
    return Report(
        bench=f"hotkey, one key with {options.share:.0%} of the rows, {options.instances} instances",
        machine=machine,
        ours=measured,
        ratios=ratios,
        targets=(at_most(spread, ratios[spread], MOST_SPREAD),) if options.judged else (),
    )


def _flow(options: HotKeyOptions) -> ms.Pipeline:
    values = ms.source("source", options.workload.stream)
    keyed = values.transform("keys", options.rows).key_by("key")
    counts = keyed.aggregate("values", n=F.count_distinct("v"), parallelism=options.instances)
    return counts.sink("out", ms.sinks.noop())


def _is_right(spark: SparkSession, options: HotKeyOptions, stopped: Run, directory: Path) -> bool:
    rows = (stopped.last_epoch + 1) * options.rows_per_epoch
    values = spark.range(rows).withColumnRenamed("id", "value")
    target = directory / "expected"
    options.rows(values).groupBy("key").agg(F.count_distinct("v").alias("n")).write.parquet(str(target))
    return same_counts(stopped.read_result("values"), pq.read_table(target, columns=["key", "n"]), options.keys)
