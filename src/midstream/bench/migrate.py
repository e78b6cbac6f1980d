"""Instances that get other executors under load, their state in a store of limited speed: three ways to fetch it.

Executors are processes of their own, each with its own cache. The pipeline runs with some partitions, then with more:
the added ones start on executors that have nothing. Each policy starts cold on the same checkpoint.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.bench.environment import Environment
from midstream.bench.machine import Machine
from midstream.bench.progress import Progress
from midstream.bench.report import Measurement, MigrationFigures, Report, Target, at_most
from midstream.bench.servers import S3Server, s3_server
from midstream.bench.throttle import throttled
from midstream.bench.timing import percentile
from midstream.changes.settings import FetchPolicy
from midstream.engine.epochs import EpochReport
from midstream.engine.run import Run
from midstream.errors import MidstreamError

DISTRIBUTIONS = ("uniform", "zipf")
POLICIES = tuple(str(policy) for policy in FetchPolicy)
ZIPF = 1.1
FILL_ROWS = 1_000_000
_MERGED_SHARE = 0.02


@dataclass(frozen=True)
class MigrateOptions:
    keys: int = 10_000_000
    rows_per_epoch: int = 20_000
    every_seconds: float = 1.0
    distribution: str = "uniform"
    payload_bytes: int = 0
    """Bytes kept beside the count of each key, for a larger state."""
    parallelism: tuple[int, int] = (3, 5)
    policies: tuple[FetchPolicy, ...] = tuple(FetchPolicy)
    megabytes_per_second: float = 100.0
    steady_epochs: int = 30
    epochs_after: int = 30
    executor_memory: str = "1g"
    judged: bool = True

    @property
    def executors(self) -> int:
        return max(self.parallelism)


QUICK = MigrateOptions(
    keys=20_000,
    rows_per_epoch=500,
    every_seconds=0.5,
    parallelism=(1, 2),
    policies=(FetchPolicy.HOT_FIRST, FetchPolicy.ALL_AT_ONCE),
    steady_epochs=3,
    epochs_after=3,
    judged=False,
)


def migrate(options: MigrateOptions, environment: Environment) -> Report:
    if options.distribution not in DISTRIBUTIONS:
        raise MidstreamError(
            "UNKNOWN_DISTRIBUTION",
            f"There is no distribution of keys called '{options.distribution}'.",
            hint=f"one of {', '.join(DISTRIBUTIONS)}.",
        )
    measured: dict[str, Measurement] = {}
    with s3_server() as server:
        with _cluster(environment, options, "fill") as (spark, _):
            machine: Machine = environment.machine(spark)
            _fill(spark, options, server, environment.progress)
        with throttled(server, options.megabytes_per_second * 1e6) as limited:
            for policy in options.policies:
                with _cluster(environment, options, policy) as (spark, _):
                    measured[policy] = _measure(spark, options, policy, limited, environment.progress)
    ratios = _ratios(measured)
    return Report(
        bench=f"migrate, {options.distribution} keys",
        machine=machine,
        ours=measured,
        ratios=ratios,
        targets=_targets(ratios, options) if options.judged else (),
    )


@contextmanager
def _cluster(environment: Environment, options: MigrateOptions, name: str) -> Iterator[tuple[SparkSession, Path]]:
    """Executors that have nothing: processes of their own, with caches of their own."""
    caches = environment.directory / f"caches-{name}"
    memory = options.executor_memory.removesuffix("g")
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    conf = {
        "spark.master": f"local-cluster[{options.executors},1,{int(memory) * 1024}]",
        "spark.executor.memory": options.executor_memory,
        "spark.executorEnv.MIDSTREAM_CACHE_DIR": f"{caches}/{{executor}}",
        "spark.executorEnv.PYTHONPATH": str(Path(ms.__file__).parents[1]),
        # A task is to wait for its executor, however busy the machine is.
        "spark.locality.wait": "60s",
    }
    try:
        with environment.session(name, conf) as (spark, directory):
            tracker = spark.sparkContext._jsc.sc().statusStore()
            deadline = time.monotonic() + 120
            while tracker.executorList(True).size() <= options.executors and time.monotonic() < deadline:
                time.sleep(0.1)
            yield spark, directory
    finally:
        shutil.rmtree(caches, ignore_errors=True)


def _key_sql(options: MigrateOptions) -> str:
    """Every key once in the first values, then keys at random."""
    if options.distribution == "zipf":
        # The inverse of the distribution's continuous counterpart, cut at the number of keys.
        exponent = 1 - ZIPF
        chance = "(pmod(xxhash64(value), 1073741824L) / 1073741824D)"
        drawn = f"CAST(pow((pow({options.keys}D, {exponent}) - 1) * {chance} + 1, {1 / exponent}) AS BIGINT) - 1"
    else:
        drawn = f"pmod(xxhash64(value), {options.keys}L)"
    return f"CASE WHEN value < {options.keys}L THEN value ELSE {drawn} END"


def _flow(options: MigrateOptions, rows: int, parallelism: int) -> ms.Pipeline:
    key_sql, payload = _key_sql(options), options.payload_bytes

    def with_key(values: DataFrame) -> DataFrame:
        # Random bytes as text, which no compression makes small.
        extra = [f"substring(repeat(sha2(string(value), 256), {payload // 64 + 1}), 1, {payload}) AS payload"]
        return values.selectExpr(f"{key_sql} AS key", *(extra if payload else []))

    values = ms.source(
        "values",
        lambda spark: spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load().select("value"),
    )
    kept: dict[str, Any] = {"n": F.count("*"), **({"payload": F.first("payload")} if payload else {})}
    counts = values.transform("keys", with_key).key_by("key").aggregate("counts", parallelism=parallelism, **kept)
    return counts.sink("out", ms.sinks.noop())


def _fill(spark: SparkSession, options: MigrateOptions, server: S3Server, progress: Progress) -> None:
    rows = min(FILL_ROWS, options.keys)
    run = _flow(options, rows, options.parallelism[0]).start(spark, server.url("chk"), store_options=server.options)
    wanted = -(-options.keys // rows)
    for epoch in range(wanted):
        progress.phase(f"filling {options.keys:,} keys ({epoch + 1}/{wanted})")
        while run.last_epoch < epoch:
            _require_running(run)
            time.sleep(0.1)
    # What is merged by now stays so: every policy finds the same segments.
    progress.phase("merging")
    deadline = time.monotonic() + 300
    while not run._runner.compactor.idle and time.monotonic() < deadline:
        time.sleep(0.2)
    run.stop()


def _require_running(run: Run) -> None:
    if run.status == "failed" and run.exception is not None:
        raise run.exception


def _measure(
    spark: SparkSession, options: MigrateOptions, policy: FetchPolicy, server: S3Server, progress: Progress
) -> Measurement:
    before, after = options.parallelism
    run = _flow(options, options.rows_per_epoch, before).start(
        spark,
        server.url("chk"),
        store_options=server.options,
        trigger={"processingTime": f"{round(options.every_seconds * 1000)} milliseconds"},
        live_changes="drop",
    )
    reports: list[EpochReport] = []
    run.on_epoch(reports.append)
    progress.phase(f"{policy}: warming up")
    _wait(run, reports, options.steady_epochs)
    while reports[-1].steps["counts"].fetched_bytes:
        _wait(run, reports, 1)
    run.apply(ms.Tune(fetch_policy=policy), timeout=120)
    progress.phase(f"{policy}: steady")
    first = len(reports)
    _wait(run, reports, options.steady_epochs)
    steady = reports[first:]
    progress.phase(f"{policy}: {before} → {after} partitions")
    submitted, first = time.time(), len(reports)
    modification = run.apply(ms.Rescale("counts", after), timeout=600)
    _wait(run, reports, options.epochs_after)
    run.stop()
    warmth = run.warmth(modification.id)
    return _figures(
        options, steady, reports[first:], submitted, modification.epoch or 0, warmth.fetched if warmth else 0
    )


def _wait(run: Run, reports: list[EpochReport], more: int) -> None:
    wanted = len(reports) + more
    while len(reports) < wanted:
        _require_running(run)
        time.sleep(0.02)


def _figures(
    options: MigrateOptions,
    steady: list[EpochReport],
    later: list[EpochReport],
    submitted: float,
    applied: int,
    warmed: int,
) -> Measurement:
    def end(report: EpochReport) -> float:
        return report.started_at.timestamp() + report.duration_ms / 1000 - submitted

    durations = [report.duration_ms for report in steady]
    (at,) = [report for report in later if report.epoch == applied]
    # Merges go on meanwhile, and what they make is fetched by everybody: a little in many epochs.
    moving = [r for r in later if r.steps["counts"].fetched_bytes > _MERGED_SHARE * at.state_bytes or r is at]
    return Measurement(
        keys=options.keys,
        rows_per_epoch=options.rows_per_epoch,
        epochs=len(later),
        rows_per_second=options.rows_per_epoch / options.every_seconds,
        epoch_p50_ms=median(durations),
        epoch_p99_ms=percentile(durations, 99),
        state_rows=at.state_rows,
        state_bytes=at.state_bytes,
        migration=MigrationFigures(
            peak_ms=max(report.duration_ms for report in later),
            p99_ms=percentile([report.duration_ms for report in later], 99),
            migrated_seconds=end(moving[-1]),
            warmed_bytes=warmed,
            first_epoch_bytes=at.steps["counts"].fetched_bytes,
            timeline=tuple((round(end(r), 3), round(r.duration_ms, 1)) for r in later),
        ),
    )


def _ratios(measured: Mapping[str, Measurement]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    ours = measured.get(FetchPolicy.HOT_FIRST)
    if ours is None or ours.migration is None:
        return ratios
    for other in (FetchPolicy.ALL_AT_ONCE, FetchPolicy.ORDER_UNAWARE):
        if other in measured and (theirs := measured[other].migration) is not None:
            ratios[f"peak of hot-first vs {other}"] = ours.migration.peak_ms / theirs.peak_ms
    ratios["peak of hot-first vs its steady p99"] = ours.migration.peak_ms / ours.epoch_p99_ms
    ratios["bytes before the first output vs state"] = ours.migration.first_epoch_bytes / (ours.state_bytes or 1)
    return ratios


def _targets(ratios: Mapping[str, float], options: MigrateOptions) -> tuple[Target, ...]:
    bounds = {"peak of hot-first vs all-at-once": 0.2, "peak of hot-first vs order-unaware": 0.5}
    if options.distribution == "zipf":
        bounds |= {"peak of hot-first vs its steady p99": 2.0, "bytes before the first output vs state": 0.1}
    return tuple(at_most(name, ratios[name], bound) for name, bound in bounds.items() if name in ratios)


def policies(names: Sequence[str]) -> tuple[FetchPolicy, ...]:
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        told = ", ".join(unknown) or "nothing"
        raise MidstreamError("UNKNOWN_POLICY", f"Of --policy {told} is unknown.", hint=f"of {', '.join(POLICIES)}.")
    return tuple(FetchPolicy(name) for name in names)
