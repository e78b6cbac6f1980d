"""How the cost of an epoch grows with the state: the same epoch on little state and on much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from midstream.bench.contender import Running
from midstream.bench.environment import Environment
from midstream.bench.ours import Midstream
from midstream.bench.report import Measurement, Report, at_most
from midstream.bench.rounds import take_turns
from midstream.bench.trial import Trial, default_fill_epochs, fill, measurement, one_more_epoch
from midstream.bench.window import Window
from midstream.bench.workload import random_keys, short

FIRST_ROUND = Window(warmup_epochs=20, warmup_seconds=60, epochs=20, seconds=10)
"""Long enough for the merge of what the fill has written, which is no part of an epoch's cost, to end."""

LATER_ROUNDS = Window(warmup_epochs=5, warmup_seconds=5, epochs=20, seconds=10)


@dataclass(frozen=True)
class GrowthOptions:
    keys: tuple[int, ...] = (1_000_000, 50_000_000)
    rows_per_epoch: int = 100_000
    rounds: int = 3
    first: Window = FIRST_ROUND
    later: Window = LATER_ROUNDS
    judged: bool = True


QUICK = GrowthOptions(
    keys=(1_000, 5_000),
    rows_per_epoch=200,
    rounds=2,
    first=Window(2, 0, 3, 0),
    later=Window(1, 0, 3, 0),
    judged=False,
)


def growth(options: GrowthOptions, environment: Environment) -> Report:
    progress = environment.progress
    measured: dict[str, Measurement] = {}
    with environment.session("growth") as (spark, directory):
        sizes = {f"midstream-{short(keys)}-keys": random_keys(keys, options.rows_per_epoch) for keys in options.keys}
        starts: dict[str, Callable[[], Running]] = {}
        filled: dict[str, float | None] = {}
        for name, workload in sizes.items():
            ours, place = Midstream(name=name), directory / name
            place.mkdir()
            trial = Trial(workload, options.first, default_fill_epochs(workload))
            filled[name] = fill(spark, ours, trial, place, progress)
            starts[name] = lambda ours=ours, workload=workload, place=place: ours.start(  # type: ignore[misc]
                spark, workload, place, rows_per_epoch=options.rows_per_epoch, once=False
            )
        rounds = take_turns(starts, options.rounds, first=options.first, later=options.later, progress=progress)
        for name, workload in sizes.items():
            final = one_more_epoch(spark, Midstream(name=name), workload, directory / name, progress)
            measured[name] = replace(
                measurement(workload, rounds[name]),
                state_rows=final.state_rows,
                state_bytes=final.state_bytes,
                fill_seconds=filled[name],
                correct=final.correct,
            )
        machine = environment.machine(spark)
    smallest, largest = (
        min(sizes, key=lambda name: sizes[name].keys),
        max(sizes, key=lambda name: sizes[name].keys),
    )
    ratio = measured[largest].epoch_p50_ms / measured[smallest].epoch_p50_ms
    name = f"epoch p50 {largest} vs {smallest}"
    return Report(
        bench="growth",
        machine=machine,
        ours=measured,
        ratios={name: ratio},
        targets=(at_most(name, ratio, 1.5),) if options.judged else (),
    )
