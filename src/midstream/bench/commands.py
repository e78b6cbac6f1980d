"""`midstream bench …`: the options of each benchmark, and what all of them do with a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream.bench import balance as balance_bench
from midstream.bench import change as change_bench
from midstream.bench import floor as floor_bench
from midstream.bench import growth as growth_bench
from midstream.bench import hotkey as hotkey_bench
from midstream.bench import instances as instances_bench
from midstream.bench import keycount as keycount_bench
from midstream.bench import migrate as migrate_bench
from midstream.bench import native, tws
from midstream.bench import nexmark as nexmark_bench
from midstream.bench import recover as recover_bench
from midstream.bench import stateful as stateful_bench
from midstream.bench import watchers as watchers_bench
from midstream.bench.environment import Environment
from midstream.bench.plot import plot_timeline, require_plotting
from midstream.bench.progress import Progress
from midstream.bench.report import Report
from midstream.bench.session import work_directory
from midstream.bench.show import show
from midstream.nexmark.queries import QUERIES
from midstream.signals import ended_in_order

app = typer.Typer(no_args_is_help=True, help="Measure midstream against native Structured Streaming.")

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")]
Check = Annotated[bool, typer.Option("--check", help="Exit 1 when a target is missed or a result is wrong.")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes and no targets: does it run and count right?")]
Dir = Annotated[Path | None, typer.Option("--dir", help="Where checkpoints go meanwhile. Default: a temporary one.")]
Memory = Annotated[str, typer.Option("--driver-memory", help="Heap of the JVM, as Spark writes sizes.")]


@app.command()
def keycount(
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys in the state.")] = 10_000_000,
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=0, help="How long each contender is measured.")] = 30,
    warmup_seconds: Annotated[float, typer.Option(min=0)] = 10,
    peers: Annotated[str, typer.Option(help="Whom to compare with, by comma; empty for nobody.")] = ",".join(
        native.PEERS
    ),
    fill_epochs: Annotated[
        int | None,
        typer.Option(min=0, help="Epochs in which every key gets its first row. Default: of up to 10 M rows."),
    ] = None,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "10g",
) -> None:
    """Counts by key, with much state or little.

    Example: midstream bench keycount --keys 10000 --rows-per-epoch 4000000 --peers spark-memory
    """
    options = keycount_bench.KeycountOptions(
        keys,
        rows_per_epoch,
        replace(keycount_bench.WINDOW, warmup_seconds=warmup_seconds, seconds=seconds),
        _names(peers),
        fill_epochs,
    )
    chosen = replace(keycount_bench.QUICK, peers=options.peers) if quick else options
    _run(lambda place: keycount_bench.keycount(chosen, place), json, check, dir, driver_memory)


@app.command()
def stateful(
    rows_per_epoch: Annotated[int, typer.Option(min=1, help="Rows, each with its own key.")] = 20_000,
    large_epoch: Annotated[int, typer.Option(min=1, help="The same for midstream's second run.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=0, help="How long each contender is measured.")] = 20,
    peers: Annotated[str, typer.Option(help=f"Of {', '.join(tws.PEERS)}, by comma.")] = stateful_bench.TARGET_PEER,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "10g",
) -> None:
    """A user function with state, against Spark's Python state API.

    Example: midstream bench stateful --peers spark-tws-pandas,spark-tws-rows
    """
    window = replace(stateful_bench.WINDOW, seconds=seconds)
    options = stateful_bench.StatefulOptions(rows_per_epoch, large_epoch, window, _names(peers))
    chosen = replace(stateful_bench.QUICK, peers=options.peers) if quick else options
    _run(lambda place: stateful_bench.stateful(chosen, place), json, check, dir, driver_memory)


@app.command()
def floor(
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 1_000,
    keys: Annotated[int, typer.Option(min=1)] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each contender.")] = 4,
    epochs: Annotated[int, typer.Option(min=2, help="Epochs measured in a turn.")] = 30,
    warmup_epochs: Annotated[int, typer.Option(min=0, help="Epochs before the first turn is measured.")] = 40,
    aggregate: Annotated[
        bool, typer.Option("--aggregate/--function", help="The keyed step: a count, or a function on tables.")
    ] = False,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "10g",
) -> None:
    """The least an epoch costs, against a plain foreachBatch without state.

    Example: midstream bench floor --rounds 6 --check
    """
    options = floor_bench.FloorOptions(rows_per_epoch, keys, rounds, epochs, warmup_epochs, aggregate)
    chosen = floor_bench.QUICK if quick else options
    _run(lambda place: floor_bench.floor(chosen, place), json, check, dir, driver_memory)


@app.command()
def growth(
    keys: Annotated[str, typer.Option(help="Sizes of the state, by comma.")] = "1000000,50000000",
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each size.")] = 3,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "10g",
) -> None:
    """The same epoch on little state and on much.

    Example: midstream bench growth --keys 1000000,10000000 --rows-per-epoch 50000
    """
    options = growth_bench.GrowthOptions(_sizes(keys), rows_per_epoch, rounds)
    chosen = growth_bench.QUICK if quick else options
    _run(lambda place: growth_bench.growth(chosen, place), json, check, dir, driver_memory)


@app.command()
def change(
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys in the state.")] = 4_000_000,
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 1_000_000,
    every_seconds: Annotated[float, typer.Option(min=0, help="Seconds between epochs; 0: as fast as it goes.")] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="How often each change is made.")] = 5,
    overhead_rounds: Annotated[int, typer.Option(min=1, help="Turns with the coordinator on and off.")] = 4,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "10g",
) -> None:
    """Changes to a running pipeline, against stopping and starting a native one.

    Example: midstream bench change --repeats 5 --check
    """
    options = change_bench.ChangeOptions(keys, rows_per_epoch, every_seconds, repeats, overhead_rounds)
    chosen = change_bench.QUICK if quick else options
    _run(lambda place: change_bench.change(chosen, place), json, check, dir, driver_memory)


@app.command()
def migrate(
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys in the state.")] = 10_000_000,
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 20_000,
    every_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds between epochs.")] = 1.0,
    distribution: Annotated[str, typer.Option(help="Of keys: uniform, or zipf (1.1).")] = "uniform",
    payload_bytes: Annotated[int, typer.Option(min=0, help="Kept beside the count of each key.")] = 0,
    policy: Annotated[
        str, typer.Option(help=f"Ways to fetch state, by comma, of {', '.join(migrate_bench.POLICIES)}.")
    ] = ",".join(migrate_bench.MigrateOptions.policies),
    megabytes_per_second: Annotated[float, typer.Option(min=1, help="What the store gives, for all together.")] = 100,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the latency timelines, as .png or .svg; needs matplotlib."),
    ] = None,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "4g",
) -> None:
    """Partitions that get other executors under load, by ways to fetch their state.

    Example: midstream bench migrate --distribution zipf --policy hot-first,all-at-once --plot timeline.png
    """
    if plot is not None:
        require_plotting(plot)
    options = migrate_bench.MigrateOptions(
        keys=keys,
        rows_per_epoch=rows_per_epoch,
        every_seconds=every_seconds,
        distribution=distribution,
        payload_bytes=payload_bytes,
        policies=migrate_bench.policies(_names(policy)),
        megabytes_per_second=megabytes_per_second,
    )
    chosen = migrate_bench.QUICK if quick else options
    _run(lambda place: migrate_bench.migrate(chosen, place), json, check, dir, driver_memory, plot)


@app.command()
def nexmark(
    queries: Annotated[str, typer.Option(help="Which, by comma: q0 to q22, or a part of them.")] = ",".join(QUERIES),
    events: Annotated[int, typer.Option(min=1, help="People, auctions and bids together.")] = 10_000_000,
    events_per_epoch: Annotated[int, typer.Option(min=1)] = 1_000_000,
    rate: Annotated[int, typer.Option(min=1, help="Events in a second of event time.")] = 10_000,
    native: Annotated[bool, typer.Option(help="Whether native Spark runs those it can express, too.")] = True,
    flink: Annotated[bool, typer.Option(help="Whether Flink does, if it is installed.")] = True,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "10g",
) -> None:
    """The queries of NEXMark, every row compared with DuckDB.

    Example: midstream bench nexmark --queries q8,q11,q20 --events 1000000
    """
    options = nexmark_bench.NexmarkOptions(_names(queries), events, events_per_epoch, rate, native, flink)
    chosen = nexmark_bench.QUICK if quick else options
    _run(lambda place: nexmark_bench.nexmark(chosen, place), json, check, dir, driver_memory)


@app.command()
def instances(
    count: Annotated[int, typer.Option("--instances", min=2, help="Instances of the keyed step.")] = 34,
    executors: Annotated[int, typer.Option(min=2, help="Processes they run on.")] = 4,
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys in the state.")] = 100_000,
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 20_000,
    every_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds between epochs.")] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="How often each change is made.")] = 5,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "4g",
) -> None:
    """Many instances with little state that all move at once: submit to applied, in epochs.

    Example: midstream bench instances --repeats 7 --check
    """
    options = instances_bench.InstancesOptions(count, executors, keys, rows_per_epoch, every_seconds, repeats)
    chosen = instances_bench.QUICK if quick else options
    _run(lambda place: instances_bench.instances(chosen, place), json, check, dir, driver_memory)


@app.command()
def recover(
    keys: Annotated[str, typer.Option(help="Sizes of the state, by comma.")] = "1000000,50000000",
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 100_000,
    repeats: Annotated[int, typer.Option(min=1, help="How often the driver of each size is killed.")] = 5,
    s3: Annotated[bool, typer.Option("--s3", help="State in an object store.")] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="With --s3: no copies of it at hand, as on another machine.")
    ] = False,
    megabytes_per_second: Annotated[float, typer.Option(min=1, help="What that store gives.")] = 100,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "10g",
) -> None:
    """After kill -9 of the driver: the time until a new one has committed, on little state and on much.

    Example: midstream bench recover --keys 1000000,10000000 --s3
    """
    options = recover_bench.RecoverOptions(
        _sizes(keys), rows_per_epoch, repeats, s3, cold, megabytes_per_second, driver_memory=driver_memory
    )
    chosen = replace(recover_bench.QUICK, s3=s3, cold=cold) if quick else options
    _run(lambda place: recover_bench.recover(chosen, place), json, check, dir, driver_memory)


@app.command()
def balance(
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys in the state.")] = 1_000_000,
    rows_per_epoch: Annotated[int, typer.Option(min=1, help="Many: the work is to outweigh fixed costs.")] = 2_000_000,
    count: Annotated[int, typer.Option("--instances", min=2, help="Instances of the keyed step.")] = 8,
    executors: Annotated[int, typer.Option(min=1, help="Processes they run on, at most one a core.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs measured before and after.")] = 30,
    aggregate: Annotated[
        bool, typer.Option("--aggregate/--function", help="The keyed step: a count, or a function on tables.")
    ] = False,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "4g",
) -> None:
    """Zipf keys: the slowest instance against the median one, before and after Rebalance.

    Example: midstream bench balance --instances 4 --check
    """
    options = balance_bench.BalanceOptions(keys, rows_per_epoch, count, executors, epochs, aggregate=aggregate)
    chosen = balance_bench.QUICK if quick else options
    _run(lambda place: balance_bench.balance(chosen, place), json, check, dir, driver_memory)


@app.command()
def hotkey(
    keys: Annotated[int, typer.Option(min=2, help="Distinct keys.")] = 100_000,
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 1_000_000,
    share: Annotated[float, typer.Option(min=0.01, max=0.99, help="Of the rows that one key has.")] = 0.8,
    count: Annotated[int, typer.Option("--instances", min=2, help="Instances of the keyed step.")] = 8,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs measured before and after.")] = 20,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "4g",
) -> None:
    """One key with most of the rows: the slowest instance against the median one, the key whole and in parts.

    Example: midstream bench hotkey --share 0.5 --check
    """
    options = hotkey_bench.HotKeyOptions(keys, rows_per_epoch, share, instances=count, epochs=epochs)
    chosen = hotkey_bench.QUICK if quick else options
    _run(lambda place: hotkey_bench.hotkey(chosen, place), json, check, dir, driver_memory)


@app.command()
def watchers(
    clients: Annotated[int, typer.Option(min=1, help="Clients that read the events.")] = 200,
    keys: Annotated[int, typer.Option(min=1, help="Distinct keys in the state.")] = 1_000_000,
    rows_per_epoch: Annotated[int, typer.Option(min=1)] = 200_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns with and without them.")] = 5,
    json: Json = None,
    check: Check = False,
    quick: Quick = False,
    dir: Dir = None,
    driver_memory: Memory = "4g",
) -> None:
    """What many clients that watch cost a pipeline at full speed.

    Example: midstream bench watchers --clients 500
    """
    options = watchers_bench.WatchersOptions(clients, keys, rows_per_epoch, rounds)
    chosen = watchers_bench.QUICK if quick else options
    _run(lambda place: watchers_bench.watchers(chosen, place), json, check, dir, driver_memory)


def _run(
    bench: Callable[[Environment], Report],
    json: Path | None,
    check: bool,
    dir: Path | None,
    driver_memory: str,
    plot: Path | None = None,
) -> None:
    console = Console()
    shown = Progress(Console(stderr=True)).shown()
    with ended_in_order(), work_directory(dir) as directory, shown as progress:
        report = bench(Environment(directory, progress, driver_memory))
    show(report, console)
    if json is not None:
        report.write_json(json)
    if plot is not None:
        plot_timeline(report, plot)
    if check and report.failures():
        raise typer.Exit(1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in _names(text))
    except ValueError:
        sizes = ()
    if len(sizes) < 2 or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise typer.BadParameter(
            "two or more different numbers by comma, such as 1000000,50000000", param_hint="--keys"
        )
    return sizes
