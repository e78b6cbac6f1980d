"""Many instances with little state get other executors at once: how long that takes, in epochs.

All instances move with one change: each executor's go to the next one, in a ring. And all get other ranges, by another
number of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import midstream as ms
from midstream.bench.changing import Epochs, make_change, median_change
from midstream.bench.environment import Environment
from midstream.bench.executors import executors
from midstream.bench.ours import Midstream, MidstreamRunning, by_aggregate
from midstream.bench.progress import Progress
from midstream.bench.report import ChangeFigures, Measurement, Report, at_most
from midstream.bench.servers import s3_server
from midstream.bench.throttle import throttled
from midstream.bench.timing import wall_ms
from midstream.bench.trial import Trial, fill, measurement
from midstream.bench.verify import counts_are_right
from midstream.bench.window import Window
from midstream.bench.workload import random_keys
from midstream.changes.change import Change
from midstream.engine.run import Run
from midstream.errors import MidstreamError
from midstream.quantiles import percentile

MOST_EPOCHS = 3.0


@dataclass(frozen=True)
class InstancesOptions:
    instances: int = 34
    executors: int = 4
    keys: int = 100_000
    rows_per_epoch: int = 20_000
    every_seconds: float = 1.0
    """Epochs that take longer follow each other at once."""
    repeats: int = 5
    warmup_epochs: int = 20
    quiet_epochs: int = 6
    megabytes_per_second: float = 100.0
    judged: bool = True


QUICK = InstancesOptions(
    instances=5,
    executors=2,
    keys=2_000,
    rows_per_epoch=500,
    every_seconds=0.3,
    repeats=1,
    warmup_epochs=3,
    quiet_epochs=2,
    judged=False,
)


def instances(options: InstancesOptions, environment: Environment) -> Report:
    workload = random_keys(options.keys, options.rows_per_epoch)
    progress = environment.progress
    with (
        s3_server() as server,
        throttled(server, options.megabytes_per_second * 1e6) as limited,
        executors(environment, "instances", options.executors) as (spark, directory),
    ):
        ours = Midstream(
            partial(by_aggregate, instances=options.instances),
            every_seconds=options.every_seconds,
            checkpoint=limited.url("chk"),
            store_options=limited.options,
        )
        fill(spark, ours, Trial(workload, Window(0, 0, 1, 0), fill_epochs=1), directory, progress)
        running = ours.start(spark, workload, directory, rows_per_epoch=options.rows_per_epoch, once=False)
        epochs = Epochs(running)
        try:
            progress.phase("warming up")
            epochs.wait(options.warmup_epochs)
            begun = len(epochs.all())
            made = _make_changes(running, epochs, options, progress)
            state = running.state_size()
        finally:
            running.stop()
        timings = epochs.all()[begun:]
        steady = replace(
            measurement(workload, [timings]),
            state_rows=state.rows,
            state_bytes=state.bytes,
            correct=counts_are_right(spark, workload, running, directory, progress),
        )
        machine = environment.machine(spark)
    wall = percentile(wall_ms(timings), 50)
    measured: dict[str, Measurement] = {"steady": steady}
    ratios: dict[str, float] = {}
    for name, figures in made.items():
        middle = median_change(figures)
        measured[name] = replace(measurement(workload, [timings]), change=middle)
        ratios[f"{name}: submit to applied, in epochs"] = middle.total_ms / wall
        ratios[f"{name}: the same at worst"] = max(f.total_ms for f in figures) / wall
    judged = [name for name in ratios if name.endswith("in epochs")] if options.judged else []
    return Report(
        bench=f"instances, {options.instances} on {options.executors} executors",
        machine=machine,
        ours=measured,
        ratios=ratios,
        targets=tuple(at_most(name, ratios[name], MOST_EPOCHS) for name in judged),
    )


def _make_changes(
    running: MidstreamRunning, epochs: Epochs, options: InstancesOptions, progress: Progress
) -> dict[str, list[ChangeFigures]]:
    made: dict[str, list[ChangeFigures]] = {}
    for number in range(options.repeats):
        for name, change in _changes(running.run, options.instances):
            progress.phase(f"{name} ({number + 1} of {options.repeats})")
            epochs.wait(options.quiet_epochs)
            before = running.run.placement()["counts"]
            made.setdefault(name, []).append(make_change(running, epochs, change, options.quiet_epochs))
            after = running.run.placement()["counts"]
            if name.startswith("migrate") and any(old == new for old, new in zip(before, after, strict=True)):
                raise MidstreamError("NOT_MOVED", f"Instances were on {before} and are on {after}.")
    return made


def _changes(run: Run, instances: int) -> Iterator[tuple[str, Change]]:
    """One after the other, each made when the one before is applied."""
    yield f"migrate all {instances}", _to_the_next(run)
    fewer = instances - 1
    yield f"rescale {instances}→{fewer}", ms.Rescale("counts", fewer)
    yield f"rescale {fewer}→{instances}", ms.Rescale("counts", instances)


def _to_the_next(run: Run) -> Change:
    ids = sorted(set(run.placement()["counts"]))
    ring = zip(ids, [*ids[1:], ids[0]], strict=True)
    return ms.ChangeSet([ms.Migrate("counts", to, from_executor=at) for at, to in ring])
