"""The queries of NEXMark, midstream and native Structured Streaming one after the other on the same events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import midstream as ms
from midstream.bench.environment import Environment
from midstream.bench.native import ROCKSDB
from midstream.bench.report import Measurement, Report, at_least, at_most
from midstream.errors import MidstreamError
from midstream.nexmark.events import Nexmark
from midstream.nexmark.flink import python_with_flink, run_query, write_csv
from midstream.nexmark.flinkqueries import FLINK
from midstream.nexmark.native import NATIVE, NativeQuery, marked
from midstream.nexmark.oracle import Oracle
from midstream.nexmark.queries import QUERIES, Query, events
from midstream.nexmark.streams import read_file, read_files, write_files
from midstream.quantiles import percentile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from midstream.bench.machine import Machine
    from midstream.engine.epochs import EpochReport

STATEFUL_TARGET = 3.0
BOUNDED, GROWTH_TARGET = "q8", 1.2
"""The query whose state must not grow with the stream."""


@dataclass(frozen=True)
class NexmarkOptions:
    queries: tuple[str, ...] = tuple(QUERIES)
    events: int = 10_000_000
    events_per_epoch: int = 1_000_000
    rate: int = 10_000
    native: bool = True
    flink: bool = True
    judged: bool = True


@dataclass(frozen=True)
class Work:
    """Events as files: a few, after which both engines have compiled what they run, and those that are measured."""

    options: NexmarkOptions
    small: Path
    measured: Path


QUICK = NexmarkOptions(("q0", "q8"), 8_000, 4_000, rate=200, judged=False)


def nexmark(options: NexmarkOptions, environment: Environment) -> Report:
    unknown = [name for name in options.queries if name not in QUERIES]
    if unknown or not options.queries:
        hint = f"of {', '.join(QUERIES)}."
        raise MidstreamError("UNKNOWN_QUERY", f"Of --queries {', '.join(unknown) or 'nothing'} is unknown.", hint=hint)
    progress = environment.progress
    progress.phase(f"making {options.events:,} events")
    stream = Nexmark(rate=options.rate)
    with TemporaryDirectory(dir=environment.directory, prefix="events-") as place:
        measured, small = Path(place, "measured"), Path(place, "warm-up")
        write_files(measured, stream, options.events, options.events_per_epoch)
        write_files(small, stream, min(options.events, 4 * options.rate), 2 * options.rate)
        return _measured(options, environment, Work(options, small, measured), Oracle(stream, options.events))


def _measured(options: NexmarkOptions, environment: Environment, work: Work, oracle: Oracle) -> Report:
    progress = environment.progress
    ours: dict[str, Measurement] = {}
    peers: dict[str, Measurement] = {}
    with environment.session("midstream") as (spark, directory):
        machine: Machine = environment.machine(spark)
        for name in options.queries:
            progress.phase(f"midstream: {name}, {QUERIES[name].about}")
            ours[name] = _ours(spark, QUERIES[name], work, directory / name, oracle)
    if options.native:
        with environment.session("spark-rocksdb", ROCKSDB) as (spark, directory):
            for name in (name for name in options.queries if name in NATIVE):
                progress.phase(f"spark-rocksdb: {name}, {QUERIES[name].about}")
                peers[f"native {name}"] = _native(spark, name, work, directory / name, oracle)
                peers[f"batch {name}"] = _batch(spark, NATIVE[name], work, directory / f"{name}-batch")
    python = python_with_flink() if options.flink else None
    if python is not None:
        small, measured = environment.directory / "flink-warm-up", environment.directory / "flink-measured"
        progress.phase("flink: writing events as CSV")
        write_csv(small, Nexmark(rate=options.rate), min(options.events, 4 * options.rate))
        write_csv(measured, Nexmark(rate=options.rate), options.events)
        for name in (name for name in options.queries if name in FLINK):
            progress.phase(f"flink: {name}, {QUERIES[name].about}")
            peers[f"flink {name}"] = _flink(python, name, options, [small, measured], environment.directory, oracle)
    ratios = {
        f"{name}: rows/s vs native": ours[name].rows_per_second / peers[f"native {name}"].rows_per_second
        for name in options.queries
        if f"native {name}" in peers
    }
    # What no engine on Spark's operators can be faster than: the same rows and operators, and no state at all.
    no_state = {
        f"{name}: without any state vs native": peers[f"batch {name}"].rows_per_second
        / peers[f"native {name}"].rows_per_second
        for name in options.queries
        if f"batch {name}" in peers
    }
    against_flink = {
        f"{name}: rows/s vs Flink": ours[name].rows_per_second / peers[f"flink {name}"].rows_per_second
        for name in options.queries
        if f"flink {name}" in peers
    }
    targets = [at_least(name, ratio, STATEFUL_TARGET) for name, ratio in ratios.items()]
    ratios |= no_state | against_flink
    bounded = ours.get(BOUNDED)
    if bounded is not None and bounded.state_growth is not None:
        name = f"{BOUNDED}: most state, second half of the stream vs first"
        ratios[name] = bounded.state_growth
        targets.append(at_most(name, bounded.state_growth, GROWTH_TARGET))
    return Report("nexmark", machine, ours, peers, ratios, tuple(targets) if options.judged else ())


def _ours(spark: SparkSession, query: Query, work: Work, directory: Path, oracle: Oracle) -> Measurement:
    def run(files: Path, place: Path) -> tuple[float, list[EpochReport]]:
        flow = query.build(events(read_files(files), work.options.rate, query.more)).sink(
            "out", ms.sinks.parquet(place / "out")
        )
        began = time.perf_counter()
        run = flow.start(spark, str(place / "checkpoint"), trigger={"availableNow": True})
        run.await_termination()
        return time.perf_counter() - began, run.epochs()

    run(work.small, directory / "warm-up")
    seconds, reports = run(work.measured, directory / "measured")
    correct = not oracle.differences(query, directory / "measured" / "out")
    figures = _measurement(work.options, seconds, [r.duration_ms for r in reports], correct)
    # The most there was: state that is bounded is no more in the second half of the stream than in the first.
    first, second = (max(r.state_bytes for r in half) for half in _halves(reports))
    rows = max(r.state_rows for r in reports)
    return replace(figures, state_rows=rows, state_bytes=second, state_growth=second / first if first else None)


def _halves(reports: Sequence[EpochReport]) -> tuple[Sequence[EpochReport], Sequence[EpochReport]]:
    middle = max(1, len(reports) // 2)
    return reports[:middle], reports[middle:] or reports


def _native(spark: SparkSession, name: str, work: Work, directory: Path, oracle: Oracle) -> Measurement:
    query: NativeQuery = NATIVE[name]

    def run(files: Path, place: Path) -> tuple[float, list[float]]:
        out = str(place / "out")

        def write(rows: DataFrame, epoch: int) -> None:
            rows.write.mode("overwrite").parquet(f"{out}/epoch={epoch}")

        writer = query.build(marked(spark, read_files(files))).writeStream.outputMode(query.mode).foreachBatch(write)
        began = time.perf_counter()
        started = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
        started.awaitTermination()
        seconds = time.perf_counter() - began
        return seconds, [p["durationMs"]["triggerExecution"] for p in started.recentProgress if p["numInputRows"]]

    run(work.small, directory / "warm-up")
    seconds, durations = run(work.measured, directory / "measured")
    wanted = replace(QUERIES[name], sql=query.sql or QUERIES[name].sql)
    correct = not oracle.differences(wanted, directory / "measured" / "out")
    return _measurement(work.options, seconds, durations, correct)


def _batch(spark: SparkSession, query: NativeQuery, work: Work, directory: Path) -> Measurement:
    """The operators of a query on the rows of each epoch by itself, epoch after epoch: neither state, nor a log."""

    def run(files: Path, place: Path) -> list[float]:
        taken = []
        for number in range(len(list((files / "bid").iterdir()))):
            began = time.perf_counter()
            rows = query.build(marked(spark, read_file(files, number)))
            rows.write.mode("overwrite").parquet(f"{place}/epoch={number}")
            taken.append((time.perf_counter() - began) * 1000)
        return taken

    run(work.small, directory / "warm-up")
    durations = run(work.measured, directory / "measured")
    return replace(_measurement(work.options, sum(durations) / 1000, durations, True), correct=None)


def _flink(
    python: Path, name: str, options: NexmarkOptions, inputs: list[Path], directory: Path, oracle: Oracle
) -> Measurement:
    outputs = [directory / f"flink-{name}" / place.name for place in inputs]
    query = replace(QUERIES[name], keys=())
    _, seconds = run_query(python, name, oracle.columns(query, ended=True), inputs, outputs)
    correct = not oracle.differences(query, outputs[-1], ended=True)
    return _measurement(options, seconds, [], correct)


def _measurement(options: NexmarkOptions, seconds: float, durations: list[float], correct: bool) -> Measurement:
    return Measurement(
        keys=0,
        rows_per_epoch=options.events_per_epoch,
        epochs=len(durations),
        rows_per_second=options.events / seconds,
        epoch_p50_ms=median(durations) if durations else 0.0,
        epoch_p99_ms=percentile(durations, 99) if durations else 0.0,
        correct=correct,
    )
