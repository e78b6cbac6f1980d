"""`midstream demo`: a keyed pipeline on generated orders, shown live and verified at the end."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.dataset as ds
import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import midstream as ms
from midstream.bench.session import spark_session
from midstream.bench.show import size
from midstream.bench.timing import QueryProgress, percentile
from midstream.engine.epochs import EpochReport
from midstream.engine.run import Run

CUSTOMERS = 50_000
EPOCHS_ONCE = 20
TRIGGER = {"processingTime": "500 milliseconds"}
PLAIN_SECONDS = 2.0
"""Between two lines where there is no terminal for the live display."""

SPARK_LINE = "▁▂▃▄▅▆▇█"

ORDERS = f"""
SELECT concat('customer-', number) AS customer,
       element_at(array('AT', 'BR', 'DE', 'FR', 'IN', 'JP', 'US'), cast(number % 7 AS int) + 1) AS country,
       amount
FROM (SELECT pmod(xxhash64(value), {CUSTOMERS}L) AS number, pmod(xxhash64(value, 'amount'), 10000L) AS amount
      FROM {{values}})
"""
"""An order from each generated number, amounts in cents. By hashes, so that a batch query finds the same."""


def demo(
    once: Annotated[bool, typer.Option("--once", help=f"Stop after about {EPOCHS_ONCE} epochs.")] = False,
    rows_per_epoch: Annotated[int, typer.Option(min=1, help="Orders generated for an epoch.")] = 100_000,
    dir: Annotated[
        Path | None, typer.Option(help="Output, checkpoint and log. Default: a new temporary directory.")
    ] = None,
) -> None:
    """Totals by customer, live, until Ctrl-C; then the output is verified against a batch computation.

    Example: midstream demo --once --rows-per-epoch 200000
    """
    console = Console()
    directory = (dir or Path(tempfile.mkdtemp(prefix="midstream-demo-"))).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    console.print(f"Parquet output in {directory / 'totals'}", highlight=False, soft_wrap=True)
    with spark_session(directory, driver_memory="2g") as spark, ctrl_c() as stop:
        flow = pipeline(rows_per_epoch, directory / "totals")
        run = flow.start(spark, checkpoint=str(directory / "checkpoint"), trigger=TRIGGER)
        progress = QueryProgress(run.query)
        watch(run, EPOCHS_ONCE if once else None, stop, console)
        verified = verify(spark, run, progress, rows_per_epoch, directory, console)
    if not verified:
        raise typer.Exit(1)


def pipeline(rows_per_epoch: int, output: Path) -> ms.Pipeline:
    def values(spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_epoch).load()

    orders = ms.source("numbers", values).sql("orders", ORDERS.format(values="input"))
    paid = orders.transform("paid", lambda orders: orders.where("amount > 0"))
    totals = paid.key_by("customer", "country").aggregate(
        "totals", orders=F.count("*"), spent=F.sum("amount"), average=F.avg("amount")
    )
    return totals.sink("out", ms.sinks.parquet(output))


@contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets: an exception in the midst of a call to the JVM would leave it broken."""
    pressed = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def press(*_: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def watch(run: Run, epochs: int | None, stop: threading.Event, console: Console) -> None:
    """Show the run until it has done `epochs`, or until told to stop, and end it after the epoch under way."""
    shown = Display()
    live = Live(shown.render(), console=console, refresh_per_second=8)
    if console.is_terminal:
        live.start()
    printed = time.monotonic()
    try:
        while run.status in ("starting", "running") and not stop.wait(0.1):
            shown.take(run.epochs())
            if console.is_terminal:
                live.update(shown.render())
            elif shown.epochs and time.monotonic() - printed >= PLAIN_SECONDS:
                printed = time.monotonic()
                console.print(shown.line(), highlight=False, soft_wrap=True)
            if epochs is not None and len(shown.epochs) >= epochs:
                break
    finally:
        live.stop()
        console.print("stopping at the end of this epoch", style="dim")
        run.stop()
    if run.exception is not None:
        raise run.exception


class Display:
    """What there is to see of a run, from the reports of its epochs."""

    def __init__(self) -> None:
        self.epochs: dict[int, EpochReport] = {}

    def take(self, reports: list[EpochReport]) -> None:
        self.epochs |= {report.epoch: report for report in reports}

    @property
    def rows_per_second(self) -> float:
        recent = list(self.epochs.values())[-10:]
        if len(recent) < 2:
            return 0.0
        span = (recent[-1].started_at - recent[0].started_at).total_seconds()
        return sum(report.rows for report in recent[:-1]) / max(span, 0.001)

    @property
    def durations(self) -> list[float]:
        return [report.duration_ms for report in self.epochs.values()]

    def line(self) -> str:
        last = list(self.epochs.values())[-1]
        return (
            f"epoch {last.epoch}: {self.rows_per_second:,.0f} rows/s, "
            f"{last.duration_ms:.0f} ms (p50 {percentile(self.durations, 50):.0f} ms), "
            f"state {last.state_rows:,} keys, {size(last.state_bytes)}"
        )

    def render(self) -> Group | Text:
        if not self.epochs:
            return Text("waiting for the first epoch …", style="dim")
        last = list(self.epochs.values())[-1]
        grid = Table.grid(padding=(0, 2))
        grid.add_row("epoch", f"[bold]{last.epoch}[/bold]")
        grid.add_row("rows/s", f"[bold]{self.rows_per_second:,.0f}[/bold]")
        grid.add_row(
            "epoch latency",
            f"[bold]{last.duration_ms:.0f} ms[/bold]  p50 {percentile(self.durations, 50):.0f} ms",
        )
        # Without the first epoch, which starts the Python workers and would flatten all others.
        grid.add_row("", f"[cyan]{spark_line(self.durations[1:][-50:])}[/cyan]")
        grid.add_row("state", f"[bold]{last.state_rows:,}[/bold] keys, {size(last.state_bytes)}")
        grid.add_row("rows so far", f"{sum(report.rows for report in self.epochs.values()):,}")
        return Group(grid)


def spark_line(values: list[float]) -> str:
    """
    >>> spark_line([0, 50, 100])
    '▁▄█'
    """
    top = max(values, default=0) or 1
    return "".join(SPARK_LINE[int(value / top * (len(SPARK_LINE) - 1))] for value in values)


@dataclass(frozen=True)
class Comparison:
    what: str
    rows: int
    right: bool


def verify(
    spark: SparkSession,
    run: Run,
    progress: QueryProgress,
    rows_per_epoch: int,
    directory: Path,
    console: Console,
) -> bool:
    """Whether the newest Parquet row of each customer, and the state, are what a batch query finds."""
    epochs = run.epochs()
    rows = progress.rows_until(epochs[-1].epoch, rows_per_epoch) if epochs else 0
    if not rows:
        console.print("No epoch was committed, so there is nothing to verify.", style="red")
        return False
    expected = batch_totals(spark, rows)
    comparisons = [
        compare("Parquet output", newest_rows(directory / "totals"), expected),
        compare("state", run.read_result("totals"), expected),
    ]
    table = Table(title=f"{rows:,} orders, {expected.num_rows:,} customers", title_justify="left")
    for column in ("compared with a batch computation", "customers", "equal"):
        table.add_column(column)
    for comparison in comparisons:
        verdict = "[green]yes[/green]" if comparison.right else "[red]NO[/red]"
        table.add_row(comparison.what, f"{comparison.rows:,}", verdict)
    console.print(table)
    right = all(comparison.right for comparison in comparisons)
    if right:
        console.print("✓ verified: output and state equal an independent batch computation", style="bold green")
    else:
        console.print("✗ NOT verified: the results differ from a batch computation", style="bold red")
    return right


def compare(what: str, found: pa.Table, expected: pa.Table) -> Comparison:
    """Whether two tables hold the same rows; the order of rows and columns, and the size of strings, do not count."""
    ordered = (table.select(expected.column_names).sort_by("customer") for table in (found, expected))
    left, right = (table.cast(expected.schema).combine_chunks() for table in ordered)
    return Comparison(what, found.num_rows, left.equals(right))


def batch_totals(spark: SparkSession, rows: int) -> pa.Table:
    orders = spark.sql(ORDERS.format(values=f"(SELECT id AS value FROM range({rows}))"))
    totals = orders.where("amount > 0").groupBy("customer", "country")
    spent, average = F.sum("amount").alias("spent"), F.avg("amount").alias("average")
    return totals.agg(F.count("*").alias("orders"), spent, average).toArrow()


def newest_rows(output: Path) -> pa.Table:
    """An epoch writes the customers it changed: a customer's totals are its row of the newest epoch."""
    written = ds.dataset(output, partitioning=ds.partitioning(pa.schema([("epoch", pa.int64())]), flavor="hive"))
    rows = written.to_table()
    newest = rows.group_by("customer").aggregate([("epoch", "max")]).rename_columns(["customer", "epoch"])
    return rows.join(newest, keys=["customer", "epoch"], join_type="inner")
