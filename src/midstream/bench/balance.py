"""Skewed keys: how much longer the slowest instance works than the median one, before and after `Rebalance`.

What is compared is the time of the state task itself, from the rows it was given to the state it wrote: reading state,
the function, writing. What Spark adds to every task is the same for all and would make them look alike. An epoch has
enough rows that this work takes many tens of milliseconds: with few, every task costs the same few milliseconds.
There are no more executors than cores: with more, tasks would wait for each other and not for their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import midstream as ms
from midstream.bench.environment import Environment
from midstream.bench.executors import executors
from midstream.bench.merged import EVERY_SECONDS, SMALL_EPOCH, merge_all
from midstream.bench.ours import Midstream, by_aggregate, by_function, wait_for
from midstream.bench.report import BalanceFigures, Measurement, Report, at_most
from midstream.bench.session import CORES
from midstream.bench.trial import Trial, fill
from midstream.bench.verify import counts_are_right
from midstream.bench.window import Window
from midstream.bench.workload import zipf_keys
from midstream.engine.epochs import EpochReport
from midstream.quantiles import percentile

MOST_SPREAD = 1.5


@dataclass(frozen=True)
class BalanceOptions:
    keys: int = 1_000_000
    rows_per_epoch: int = 2_000_000
    instances: int = 8
    executors: int = CORES
    epochs: int = 30
    warmup_epochs: int = 15
    aggregate: bool = False
    """Whether rows are counted before the exchange, too, after which a hot key has hardly more rows than others."""
    judged: bool = True


QUICK = BalanceOptions(
    keys=5_000, rows_per_epoch=20_000, instances=4, epochs=4, warmup_epochs=3, executors=2, judged=False
)


def balance(options: BalanceOptions, environment: Environment) -> Report:
    workload, progress = zipf_keys(options.keys, options.rows_per_epoch), environment.progress
    count = by_aggregate if options.aggregate else by_function
    ours = Midstream(partial(count, instances=options.instances))
    measured: dict[str, Measurement] = {}
    with executors(environment, "balance", options.executors) as (spark, directory):
        machine = environment.machine(spark)
        fill(spark, ours, Trial(workload, Window(0, 0, 1, 0), fill_epochs=1), directory, progress)
        progress.phase("merging")
        paced = replace(ours, every_seconds=EVERY_SECONDS)
        running = paced.start(spark, workload, directory, rows_per_epoch=SMALL_EPOCH, once=False)
        try:
            merge_all(running.run, "counts", progress)
        finally:
            running.stop()
        running = ours.start(spark, workload, directory, rows_per_epoch=options.rows_per_epoch, once=False)
        reports: list[EpochReport] = []
        running.run.on_epoch(reports.append)
        try:
            for name, change in (("even ranges", None), ("rebalanced", ms.Rebalance("counts"))):
                progress.phase(f"{name}: warming up")
                if change is not None:
                    running.run.apply(change, timeout=300)
                wait_for(running.run, reports, options.warmup_epochs)
                progress.phase(f"{name}: measuring")
                first = len(reports)
                wait_for(running.run, reports, options.epochs)
                measured[name] = figures_of(reports[first:], "counts", options.keys, options.rows_per_epoch)
        finally:
            running.stop()
        correct = counts_are_right(spark, workload, running, directory, progress)
    measured = {name: replace(figures, correct=correct) for name, figures in measured.items()}
    ratios = {f"slowest vs median instance, {name}": m.balance.spread for name, m in measured.items() if m.balance}
    last = list(ratios)[-1]
    return Report(
        bench=f"balance, zipf keys, {options.instances} instances",
        machine=machine,
        ours=measured,
        ratios=ratios,
        targets=(at_most(last, ratios[last], MOST_SPREAD),) if options.judged else (),
    )


def figures_of(reports: Sequence[EpochReport], step: str, keys: int, rows_per_epoch: int) -> Measurement:
    """Of each epoch the slowest instance, the median one, and the one by the other; of those the median."""
    durations = [report.duration_ms for report in reports]
    steps = [report.steps[step] for report in reports]
    return Measurement(
        keys=keys,
        rows_per_epoch=rows_per_epoch,
        epochs=len(reports),
        rows_per_second=rows_per_epoch * 1000 / median(durations),
        epoch_p50_ms=percentile(durations, 50),
        epoch_p99_ms=percentile(durations, 99),
        state_rows=reports[-1].state_rows,
        state_bytes=reports[-1].state_bytes,
        balance=BalanceFigures(
            slowest_ms=median(step.slowest_ms for step in steps),
            median_ms=median(step.median_ms for step in steps),
            spread=median(step.slowest_ms / max(step.median_ms, 0.001) for step in steps),
        ),
    )
