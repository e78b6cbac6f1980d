"""After `kill -9` of the driver: how soon a new one commits its first epoch, on little state and on much.

Sizes take turns, so that a machine that grows slower or faster does so for all of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from midstream.bench.driver import Life, Orders, driver
from midstream.bench.environment import Environment
from midstream.bench.executors import driver_cache
from midstream.bench.merged import EVERY_SECONDS, SMALL_EPOCH, merge_all
from midstream.bench.ours import Midstream
from midstream.bench.progress import Progress
from midstream.bench.report import Measurement, RecoveryFigures, Report, at_most
from midstream.bench.servers import S3Server, s3_server
from midstream.bench.throttle import throttled
from midstream.bench.trial import Trial, default_fill_epochs, fill, one_more_epoch
from midstream.bench.window import Window
from midstream.bench.workload import Workload, random_keys, short
from midstream.quantiles import percentile

MOST_GROWTH = 1.3
SEED = 20261


@dataclass(frozen=True)
class RecoverOptions:
    keys: tuple[int, ...] = (1_000_000, 50_000_000)
    rows_per_epoch: int = 100_000
    repeats: int = 5
    s3: bool = False
    """State in an object store in place of a directory."""
    cold: bool = False
    """Whether each driver starts without a copy of any of it. Else it finds the cache of the one before, as on the same
    machine: copies of immutable files outlive the process that made them."""
    megabytes_per_second: float = 100.0
    epochs: int = 10
    """Epochs of a driver until it is killed, in the middle of the next one."""
    driver_memory: str = "4g"
    judged: bool = True


QUICK = RecoverOptions(keys=(2_000, 10_000), rows_per_epoch=500, repeats=1, epochs=2, driver_memory="1g", judged=False)


@dataclass(frozen=True)
class Place:
    """Where the checkpoint of a size is, for who measures and for who prepares and verifies."""

    workload: Workload
    directory: Path
    ours: Midstream
    limited: Midstream


def recover(options: RecoverOptions, environment: Environment) -> Report:
    progress = environment.progress
    lives: dict[str, list[Life]] = {}
    with _servers(options) as (server, limited), driver_cache(environment.directory / "cache"):
        places = {
            f"midstream-{short(keys)}-keys": _place(options, environment.directory, keys, server, limited)
            for keys in options.keys
        }
        filled: dict[str, float | None] = {}
        with environment.session("fill") as (spark, _):
            machine = environment.machine(spark)
            for name, place in places.items():
                filled[name] = _prepare(spark, name, place, progress)
        chance = random.Random(SEED)
        # The first of each size goes on behind a clean end: it is there to be killed.
        for number in range(options.repeats + 1):
            for name, place in places.items():
                progress.phase(f"{name}: {'start' if not number else f'recovery {number} of {options.repeats}'}")
                lives.setdefault(name, []).append(_live_and_die(options, name, place, number, chance))
        measured: dict[str, Measurement] = {}
        with environment.session("verify") as (spark, _):
            for name, place in places.items():
                final = one_more_epoch(spark, place.ours, place.workload, place.directory, progress)
                measured[name] = replace(
                    _figures(place.workload, lives[name]),
                    state_rows=final.state_rows,
                    state_bytes=final.state_bytes,
                    fill_seconds=filled[name],
                    correct=final.correct,
                )
    ratios = _ratios(places, measured)
    return Report(
        bench=f"recover, state in {'an object store' if options.s3 else 'a directory'}"
        f"{', no copies of it at hand' if options.cold else ''}",
        machine=machine,
        ours=measured,
        ratios=ratios,
        targets=tuple(at_most(name, ratios[name], MOST_GROWTH) for name in list(ratios)[:1] if options.judged),
    )


@contextmanager
def _servers(options: RecoverOptions) -> Iterator[tuple[S3Server | None, S3Server | None]]:
    if not options.s3:
        yield None, None
        return
    with s3_server() as server, throttled(server, options.megabytes_per_second * 1e6) as limited:
        yield server, limited


def _place(
    options: RecoverOptions, parent: Path, keys: int, server: S3Server | None, limited: S3Server | None
) -> Place:
    directory = parent / f"keys-{keys}"
    directory.mkdir()

    def ours(of: S3Server | None) -> Midstream:
        checkpoint = of.url(directory.name) if of else str(directory / "checkpoint")
        return Midstream(
            name=f"midstream-{short(keys)}-keys", checkpoint=checkpoint, store_options=of.options if of else {}
        )

    return Place(random_keys(keys, options.rows_per_epoch), directory, ours(server), ours(limited))


def _prepare(spark: SparkSession, name: str, place: Place, progress: Progress) -> float | None:
    """Every key once, and all of it merged: what is under way when a driver dies is then much alike at every size."""
    trial = Trial(place.workload, Window(0, 0, 1, 0), max(1, default_fill_epochs(place.workload)))
    seconds = fill(spark, place.ours, trial, place.directory, progress)
    progress.phase(f"{name}: merging")
    paced = replace(place.ours, every_seconds=EVERY_SECONDS)
    running = paced.start(spark, place.workload, place.directory, rows_per_epoch=SMALL_EPOCH, once=False)
    try:
        merge_all(running.run, "counts", progress)
    finally:
        running.stop()
    return seconds


def _live_and_die(options: RecoverOptions, name: str, place: Place, number: int, chance: random.Random) -> Life:
    orders = Orders(
        directory=str(place.directory / f"driver-{number}"),
        keys=place.workload.keys,
        rows_per_epoch=options.rows_per_epoch,
        checkpoint=str(place.limited.checkpoint),
        store_options=place.limited.store_options,
        driver_memory=options.driver_memory,
        cache=None if options.cold else str(place.directory / "cache"),
    )
    with driver(orders) as started:
        life = started.wait(options.epochs)
        time.sleep(chance.random() * median(ms for _, ms in life.epochs) / 1000)
        started.kill()
    return life


def _figures(workload: Workload, lives: list[Life]) -> Measurement:
    recoveries = lives[1:]
    # The first epoch of a process makes its Python workers and compiles its plans.
    later = [ms for life in lives for _, ms in life.epochs[1:]]
    return Measurement(
        keys=workload.keys,
        rows_per_epoch=workload.rows_per_epoch,
        epochs=len(later),
        rows_per_second=workload.rows_per_epoch * 1000 / median(later),
        epoch_p50_ms=percentile(later, 50),
        epoch_p99_ms=percentile(later, 99),
        recovery=RecoveryFigures(
            repeated=len(recoveries),
            first_commit_ms=median(life.first_commit_ms for life in recoveries),
            slowest_first_commit_ms=max(life.first_commit_ms for life in recoveries),
            first_commit_of_process_ms=median(life.first_commit_of_process_ms for life in recoveries),
            first_epoch_ms=median(life.epochs[0][1] for life in recoveries),
        ),
    )


def _ratios(places: Mapping[str, Place], measured: Mapping[str, Measurement]) -> dict[str, float]:
    by_size = sorted(places, key=lambda name: places[name].workload.keys)
    small, large = measured[by_size[0]].recovery, measured[by_size[-1]].recovery
    assert small is not None
    assert large is not None
    told = f"{by_size[-1]} vs {by_size[0]}"
    return {
        f"start to first commit {told}": large.first_commit_ms / small.first_commit_ms,
        f"process to first commit {told}": large.first_commit_of_process_ms / small.first_commit_of_process_ms,
    }
