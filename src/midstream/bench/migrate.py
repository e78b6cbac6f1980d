"""Instances that get other executors under load, their state in a store of limited speed: ways to fetch it.

Executors are processes of their own, each with its own cache. The pipeline runs with some partitions, then with more:
the added ones start on executors that have nothing. Each policy starts cold on the same checkpoint, its state merged
into one base: rows go on from policy to policy, and merging them is not to fall into what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.bench.environment import Environment
from midstream.bench.executors import executors
from midstream.bench.machine import Machine
from midstream.bench.merged import EVERY_SECONDS, SMALL_EPOCH, base, merge_all
from midstream.bench.ours import MidstreamRunning, failure_of, wait_for
from midstream.bench.progress import Progress
from midstream.bench.report import Measurement, MigrationFigures, Report, Target, at_most
from midstream.bench.servers import S3Server, s3_server
from midstream.bench.throttle import throttled
from midstream.bench.verify import counts_kept, matches_batch
from midstream.bench.workload import Workload, random_keys, zipf_keys
from midstream.changes.settings import FetchPolicy
from midstream.engine.epochs import EpochReport
from midstream.engine.run import Run
from midstream.errors import MidstreamError
from midstream.quantiles import percentile
from midstream.state.store import open_store

DISTRIBUTIONS: Mapping[str, Callable[[int, int], Workload]] = {"uniform": random_keys, "zipf": zipf_keys}
POLICIES = tuple(str(policy) for policy in FetchPolicy)
FILL_ROWS = 1_000_000
LARGE_STATE = 2 * 10**9
"""From here on moving takes as long as the store takes: with less state, the wait for epoch boundaries shows."""

_READING = "until all is there vs reading the state at the store's limit"
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
    policies: tuple[FetchPolicy, ...] = (FetchPolicy.HOT_FIRST, FetchPolicy.ORDER_UNAWARE, FetchPolicy.ALL_AT_ONCE)
    megabytes_per_second: float = 100.0
    steady_epochs: int = 30
    epochs_after: int = 30
    settling_epochs: int = 200
    executor_megabytes: int = 1024
    judged: bool = True

    @property
    def executors(self) -> int:
        return max(self.parallelism)

    @property
    def workload(self) -> Workload:
        return DISTRIBUTIONS[self.distribution](self.keys, self.rows_per_epoch)


QUICK = MigrateOptions(
    keys=20_000,
    rows_per_epoch=500,
    every_seconds=0.5,
    parallelism=(1, 2),
    policies=(FetchPolicy.HOT_FIRST, FetchPolicy.ALL_AT_ONCE),
    steady_epochs=3,
    epochs_after=3,
    settling_epochs=3,
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
    count, megabytes, progress = options.executors, options.executor_megabytes, environment.progress
    with s3_server() as server, throttled(server, options.megabytes_per_second * 1e6) as limited:
        for policy in options.policies:
            with executors(environment, f"before-{policy}", count, megabytes) as (spark, _):
                machine: Machine = environment.machine(spark)
                if not measured:
                    _fill(spark, options, server, progress)
                _merge(spark, options, server, progress)
            with executors(environment, policy, count, megabytes) as (spark, directory):
                figures, run = _measure(spark, options, policy, limited, progress)
                if figures.migration is not None:
                    usual = f"usually up to {figures.epoch_p99_ms:,.0f} ms"
                    progress.phase(f"{policy}: slowest epoch {figures.migration.peak_ms:,.0f} ms, {usual}")
                progress.phase(f"{policy}: comparing the counts with a batch computation")
                correct = _is_right(spark, options, run, server, directory)
                measured[policy] = replace(figures, correct=correct)
    ratios = _ratios(measured, options)
    return Report(
        bench=f"migrate, {options.distribution} keys",
        machine=machine,
        ours=measured,
        ratios=ratios,
        targets=_targets(ratios, measured, options) if options.judged else (),
    )


def _flow(options: MigrateOptions, rows: int, parallelism: int) -> ms.Pipeline:
    key_sql, payload = options.workload.key_sql, options.payload_bytes

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
        _await_epoch(run, epoch)
    run.stop()


def _await_epoch(run: Run, epoch: int) -> None:
    while run.last_epoch < epoch:
        if (failure := failure_of(run)) is not None:
            raise failure
        time.sleep(0.1)


def _merge(spark: SparkSession, options: MigrateOptions, server: S3Server, progress: Progress) -> None:
    """Make one base of the state, at the store's full speed, in epochs that add next to nothing to it."""
    progress.phase("merging")
    run = _flow(options, SMALL_EPOCH, options.parallelism[0]).start(
        spark,
        server.url("chk"),
        store_options=server.options,
        trigger={"processingTime": f"{round(EVERY_SECONDS * 1000)} milliseconds"},
        live_changes="drop",
    )
    try:
        merge_all(run, "counts", progress)
    finally:
        run.stop()


def _settle(spark: SparkSession, options: MigrateOptions, server: S3Server, progress: Progress, name: str) -> None:
    """Many small epochs. In the first minutes of a process Java compiles, beside what it runs, all that runs often; a
    pipeline that is to be changed usually has run for longer."""
    progress.phase(f"{name}: settling")
    run = _flow(options, SMALL_EPOCH, options.parallelism[0]).start(
        spark, server.url("chk"), store_options=server.options, live_changes="drop"
    )
    try:
        _await_epoch(run, run.last_epoch + options.settling_epochs)
    finally:
        run.stop()


def _measure(
    spark: SparkSession, options: MigrateOptions, policy: FetchPolicy, server: S3Server, progress: Progress
) -> tuple[Measurement, Run]:
    """The figures, and the run they are of, stopped."""
    before, after = options.parallelism
    _settle(spark, options, server, progress, policy)
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
    wait_for(run, reports, options.steady_epochs)
    while reports[-1].steps["counts"].fetched_bytes:
        wait_for(run, reports, 1)
    run.apply(ms.Tune(fetch_policy=policy), timeout=120)
    progress.phase(f"{policy}: steady")
    first = len(reports)
    wait_for(run, reports, options.steady_epochs)
    steady, merged = reports[first:], base(run, "counts")
    progress.phase(f"{policy}: {before} → {after} partitions")
    submitted, first = time.time(), len(reports)
    modification = run.apply(ms.Rescale("counts", after), timeout=600)
    wait_for(run, reports, options.epochs_after)
    run.stop()
    warmth = run.warmth(modification.id)
    figures = _figures(
        options,
        steady,
        reports[first:],
        submitted,
        applied=modification.epoch or 0,
        warmed=warmth.fetched if warmth else 0,
        base_merged=base(run, "counts") != merged,
    )
    return figures, run


def _is_right(spark: SparkSession, options: MigrateOptions, stopped: Run, server: S3Server, directory: Path) -> bool:
    """Whether the counts are those of all rows so far: of the fill and of every policy until now. They are read without
    the limit on the store."""
    counts = counts_kept(open_store(server.url("chk"), server.options), stopped._runner.last, "counts")
    rows = MidstreamRunning("", stopped, options.rows_per_epoch).rows_committed()
    return matches_batch(spark, options.workload, counts, rows, directory)


def _figures(
    options: MigrateOptions,
    steady: list[EpochReport],
    later: list[EpochReport],
    submitted: float,
    *,
    applied: int,
    warmed: int,
    base_merged: bool,
) -> Measurement:
    def end(report: EpochReport) -> float:
        return report.started_at.timestamp() + report.duration_ms / 1000 - submitted

    durations = [report.duration_ms for report in steady]
    (at,) = [report for report in later if report.epoch == applied]
    # What merges make is fetched by everybody: a little in many epochs, and more now and then, long after the move.
    behind = (r for r in later if r.epoch > applied)
    moving = [at, *takewhile(lambda r: r.steps["counts"].fetched_bytes > _MERGED_SHARE * at.state_bytes, behind)]
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
            applied_seconds=end(at),
            base_merged=base_merged,
        ),
    )


def _ratios(measured: Mapping[str, Measurement], options: MigrateOptions) -> dict[str, float]:
    ratios: dict[str, float] = {}
    ours = measured.get(FetchPolicy.HOT_FIRST)
    if ours is None or ours.migration is None:
        return ratios
    for other in (FetchPolicy.ALL_AT_ONCE, FetchPolicy.ORDER_UNAWARE, FetchPolicy.ON_DEMAND):
        if other in measured and (theirs := measured[other].migration) is not None:
            ratios[f"peak of hot-first vs {other}"] = ours.migration.peak_ms / theirs.peak_ms
    ratios["peak of hot-first vs its steady p99"] = ours.migration.peak_ms / ours.epoch_p99_ms
    ratios["bytes before the first output vs state"] = ours.migration.first_epoch_bytes / (ours.state_bytes or 1)
    reading = (ours.state_bytes or 1) / (options.megabytes_per_second * 1e6)
    ratios[_READING] = ours.migration.migrated_seconds / reading
    return ratios


def _targets(
    ratios: Mapping[str, float], measured: Mapping[str, Measurement], options: MigrateOptions
) -> tuple[Target, ...]:
    bounds = {"peak of hot-first vs all-at-once": 0.2, "peak of hot-first vs order-unaware": 0.5}
    if options.distribution == "zipf":
        bounds |= {"peak of hot-first vs its steady p99": 2.0, "bytes before the first output vs state": 0.1}
    if any((figures.state_bytes or 0) >= LARGE_STATE for figures in measured.values()):
        bounds |= {_READING: 1.0}
    return tuple(at_most(name, ratios[name], bound) for name, bound in bounds.items() if name in ratios)


def policies(names: Sequence[str]) -> tuple[FetchPolicy, ...]:
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        told = ", ".join(unknown) or "nothing"
        raise MidstreamError("UNKNOWN_POLICY", f"Of --policy {told} is unknown.", hint=f"of {', '.join(POLICIES)}.")
    return tuple(FetchPolicy(name) for name in names)
