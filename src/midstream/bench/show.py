"""A report as tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from midstream.bench.report import BalanceFigures, ChangeFigures, Measurement, MigrationFigures, RecoveryFigures, Report

Figure = Callable[[Measurement], str | None]


def show(report: Report, console: Console) -> None:
    console.print(figures(report))
    if report.ratios:
        console.print(ratios(report))
    machine = report.machine
    console.print(
        f"{machine.cores} cores, {size(machine.memory_bytes)}, Python {machine.python}, "
        f"PySpark {machine.pyspark}, Java {machine.java}",
        style="dim",
        highlight=False,
    )
    for failure in report.failures():
        console.print(f"✗ {failure}", style="bold red", highlight=False)


def figures(report: Report) -> Table:
    """A column for each contender, a line for each figure that any of them has."""
    measured = {**report.ours, **report.peers}
    table = Table(title=f"midstream bench {report.bench}", title_justify="left")
    if len(measured) > _MOST_COLUMNS:
        return _by_line(table, measured, report)
    table.add_column("")
    for name in measured:
        table.add_column(name, justify="right", style="bold" if name in report.ours else None)
    for label, figure in LINES:
        cells = [figure(figures) for figures in measured.values()]
        if any(cell is not None for cell in cells):
            table.add_row(label, *(cell or "–" for cell in cells))
    return table


_MOST_COLUMNS = 12


def _by_line(table: Table, measured: Mapping[str, Measurement], report: Report) -> Table:
    """A line for each contender, where there are too many for columns."""
    shown = [(label, figure) for label, figure in LINES if any(figure(m) is not None for m in measured.values())]
    for label in ("", *(label for label, _ in shown)):
        table.add_column(label, justify="right" if label else "left")
    for name, figures in measured.items():
        style = "bold" if name in report.ours else None
        table.add_row(name, *(figure(figures) or "–" for _, figure in shown), style=style)
    return table


def ratios(report: Report) -> Table:
    table = Table(title="ratios", title_justify="left")
    for column in ("ratio", "value", "target", ""):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    targets = {target.name: target for target in report.targets}
    for name, value in report.ratios.items():
        target = targets.get(name)
        verdict = "" if target is None else "[green]✓ met[/green]" if target.met else "[red]✗ missed[/red]"
        table.add_row(name, f"{value:.3g}×", target.bound if target else "", verdict)
    return table


def size(count: float) -> str:
    """
    >>> size(512), size(20_480), size(3.5 * 1024**3)
    ('512 B', '20.0 KiB', '3.5 GiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def _optional(value: Any, text: Callable[[Any], str]) -> str | None:
    return None if value is None else text(value)


def _of_change(measured: Measurement, text: Callable[[ChangeFigures], str | None]) -> str | None:
    return None if measured.change is None else text(measured.change)


def _of_migration(measured: Measurement, text: Callable[[MigrationFigures], str | None]) -> str | None:
    return None if measured.migration is None else text(measured.migration)


def _of_recovery(measured: Measurement, text: Callable[[RecoveryFigures], str]) -> str | None:
    return None if measured.recovery is None else text(measured.recovery)


def _of_balance(measured: Measurement, text: Callable[[BalanceFigures], str]) -> str | None:
    return None if measured.balance is None else text(measured.balance)


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms"


LINES: tuple[tuple[str, Figure], ...] = (
    ("keys", lambda m: _number(m.keys)),
    ("rows an epoch", lambda m: _number(m.rows_per_epoch)),
    ("epochs measured", lambda m: _number(m.epochs)),
    ("rows/s", lambda m: _number(m.rows_per_second)),
    ("epoch p50", lambda m: _milliseconds(m.epoch_p50_ms) if m.epochs else None),
    ("epoch p99", lambda m: _milliseconds(m.epoch_p99_ms) if m.epochs else None),
    ("epoch to epoch p50", lambda m: _optional(m.wall_p50_ms, _milliseconds)),
    ("state rows", lambda m: _optional(m.state_rows, _number)),
    ("state bytes", lambda m: _optional(m.state_bytes, size)),
    ("state, second half vs first", lambda m: _optional(m.state_growth, lambda growth: f"{growth:.2f}×")),
    ("checkpoint bytes an epoch", lambda m: _optional(m.checkpoint_bytes_per_epoch, size)),
    ("fill", lambda m: _optional(m.fill_seconds, lambda seconds: f"{seconds:.1f} s")),
    ("times made", lambda m: _of_change(m, lambda c: _number(c.repeated))),
    ("submit", lambda m: _of_change(m, lambda c: _optional(c.submit_ms, _milliseconds))),
    ("wait", lambda m: _of_change(m, lambda c: _optional(c.wait_ms, _milliseconds))),
    ("perform", lambda m: _of_change(m, lambda c: _optional(c.perform_ms, _milliseconds))),
    ("total", lambda m: _of_change(m, lambda c: _milliseconds(c.total_ms))),
    ("epoch before", lambda m: _of_change(m, lambda c: _milliseconds(c.epoch_before_ms))),
    ("epoch at", lambda m: _of_change(m, lambda c: _milliseconds(c.epoch_at_ms))),
    ("epoch after", lambda m: _of_change(m, lambda c: _milliseconds(c.epoch_after_ms))),
    ("outage", lambda m: _of_change(m, lambda c: _milliseconds(c.outage_ms))),
    ("peak epoch while migrating", lambda m: _of_migration(m, lambda f: _milliseconds(f.peak_ms))),
    ("p99 while migrating", lambda m: _of_migration(m, lambda f: _milliseconds(f.p99_ms))),
    (
        "until applied",
        lambda m: _of_migration(m, lambda f: _optional(f.applied_seconds, lambda seconds: f"{seconds:.1f} s")),
    ),
    ("until all is there", lambda m: _of_migration(m, lambda f: f"{f.migrated_seconds:.1f} s")),
    ("fetched beforehand", lambda m: _of_migration(m, lambda f: size(f.warmed_bytes))),
    ("fetched by the first epoch", lambda m: _of_migration(m, lambda f: size(f.first_epoch_bytes))),
    ("base merged meanwhile", lambda m: _of_migration(m, lambda f: "YES" if f.base_merged else "no")),
    ("times killed", lambda m: _of_recovery(m, lambda r: _number(r.repeated))),
    ("start to first commit", lambda m: _of_recovery(m, lambda r: _milliseconds(r.first_commit_ms))),
    ("start to first commit, slowest", lambda m: _of_recovery(m, lambda r: _milliseconds(r.slowest_first_commit_ms))),
    ("process to first commit", lambda m: _of_recovery(m, lambda r: _milliseconds(r.first_commit_of_process_ms))),
    ("first epoch", lambda m: _of_recovery(m, lambda r: _milliseconds(r.first_epoch_ms))),
    ("slowest instance", lambda m: _of_balance(m, lambda b: _milliseconds(b.slowest_ms))),
    ("median instance", lambda m: _of_balance(m, lambda b: _milliseconds(b.median_ms))),
    ("counts right", lambda m: _optional(m.correct, lambda right: "yes" if right else "NO")),
)
