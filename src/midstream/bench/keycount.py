"""Counts by key, midstream and native one after the other on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.bench import native
from midstream.bench.contender import Contender
from midstream.bench.environment import Environment
from midstream.bench.ours import Midstream
from midstream.bench.report import Measurement, Report, Target, at_least
from midstream.bench.trial import Trial, default_fill_epochs, run_trial
from midstream.bench.window import Window
from midstream.bench.workload import random_keys
from midstream.errors import MidstreamError

WINDOW = Window(warmup_epochs=3, warmup_seconds=10, epochs=3, seconds=30)


@dataclass(frozen=True)
class KeycountOptions:
    keys: int = 10_000_000
    rows_per_epoch: int = 1_000_000
    window: Window = WINDOW
    peers: tuple[str, ...] = tuple(native.PEERS)
    fill_epochs: int | None = None


QUICK = KeycountOptions(keys=3_000, rows_per_epoch=1_000, window=Window(2, 0, 3, 1))


def keycount(options: KeycountOptions, environment: Environment) -> Report:
    peers = select_peers(options.peers, native.PEERS)
    workload = random_keys(options.keys, options.rows_per_epoch)
    fill_epochs = options.fill_epochs if options.fill_epochs is not None else default_fill_epochs(workload)
    trial = Trial(workload, options.window, fill_epochs)
    ours = Midstream()
    contenders: list[Contender] = [ours, *peers]
    measured = {}
    for contender in contenders:
        with environment.session(contender.name, contender.conf) as (spark, directory):
            machine = environment.machine(spark)
            measured[contender.name] = run_trial(spark, contender, trial, directory, environment.progress)
    mine = measured.pop(ours.name)
    return Report(
        bench="keycount",
        machine=machine,
        ours={ours.name: mine},
        peers=measured,
        ratios=speedups(mine, measured),
        targets=targets(options, mine, measured),
    )


def speedups(mine: Measurement, peers: Mapping[str, Measurement]) -> dict[str, float]:
    return {f"rows/s vs {name}": mine.rows_per_second / peer.rows_per_second for name, peer in peers.items()}


def targets(options: KeycountOptions, mine: Measurement, peers: Mapping[str, Measurement]) -> tuple[Target, ...]:
    """The bounds that were set for large state and for small; none in between."""
    ratios = speedups(mine, peers)
    bounds = _bounds(options.keys, options.rows_per_epoch)
    return tuple(
        at_least(name, ratios[name], bound)
        for name, bound in ((f"rows/s vs {peer}", bound) for peer, bound in bounds.items())
        if name in ratios
    )


def _bounds(keys: int, rows_per_epoch: int) -> dict[str, float]:
    if rows_per_epoch < 1_000_000:
        return {}
    if keys >= 10_000_000:
        return {"spark-rocksdb": 10, "spark-memory": 5}
    if keys <= 10_000:
        return {"spark-memory": 1.0 if rows_per_epoch >= 4_000_000 else 0.9}
    return {}


def select_peers(names: tuple[str, ...], known: Mapping[str, native.NativeCount]) -> list[native.NativeCount]:
    for name in names:
        if name not in known:
            raise MidstreamError(
                "UNKNOWN_PEER",
                f"No peer '{name}' to compare with.",
                hint=f"the peers are {', '.join(known)}.",
            )
    return [known[name] for name in names]
