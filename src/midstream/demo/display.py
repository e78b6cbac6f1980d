"""What there is to see of the demo while it runs, and at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from midstream.bench.show import size
from midstream.cli.figures import spark_line
from midstream.demo.story import Told
from midstream.demo.verify import Comparison, Stretch
from midstream.engine.epochs import EpochReport
from midstream.quantiles import percentile


class Display:
    """What there is to see of a run, from the reports of its epochs."""

    def __init__(self) -> None:
        self.epochs: dict[int, EpochReport] = {}
        self.doing = "warming up"
        self.done: list[Told] = []

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
        grid.add_row("epoch", f"[bold]{last.epoch}[/bold], plan {last.plan}")
        grid.add_row("rows/s", f"[bold]{self.rows_per_second:,.0f}[/bold]")
        grid.add_row(
            "epoch latency",
            f"[bold]{last.duration_ms:.0f} ms[/bold]  p50 {percentile(self.durations, 50):.0f} ms",
        )
        # Without the first epoch, which starts the Python workers and would flatten all others.
        grid.add_row("", f"[cyan]{spark_line(self.durations[1:][-50:])}[/cyan]")
        grid.add_row("state", f"[bold]{last.state_rows:,}[/bold] keys, {size(last.state_bytes)}")
        grid.add_row("now", f"[yellow]{self.doing}[/yellow]")
        return Group(grid, *(Text(f"✓ {told_line(told)}", style="green") for told in self.done))


def told_line(told: Told) -> str:
    m = told.modification
    at = f" from epoch {m.epoch}" if m.epoch is not None else ""
    extra = f", {told.extra_ms:+.0f} ms" if told.extra_ms is not None else ""
    return f"{told.scene.words}: {m.phase}{at}{extra}"


def costs(told: Sequence[Told], found: Sequence[Stretch]) -> Table:
    """What each change has cost. `found` begins with the stretch before the first."""
    table = Table(title="changes to the running pipeline", title_justify="left")
    table.add_column("change")
    table.add_column("ended")
    for column in ("wait", "perform", "extra latency", "lost", "duplicated"):
        table.add_column(column, justify="right")
    after = iter(found[1:])
    for one in told:
        seconds = one.modification.seconds
        stretch = next(after) if one.modification.epoch is not None else None
        table.add_row(
            one.scene.words,
            str(one.modification.phase),
            *(f"{seconds[part] * 1000:,.0f} ms" if part in seconds else "–" for part in ("wait", "perform")),
            f"{one.extra_ms:+,.0f} ms" if one.extra_ms is not None else "none",
            *((f"{stretch.lost:,}", f"{stretch.duplicated:,}") if stretch is not None else ("0", "0")),
        )
    return table


def compared(comparisons: Sequence[Comparison]) -> Table:
    table = Table(title="compared with a batch computation", title_justify="left")
    for column in ("", "rows", "equal"):
        table.add_column(column)
    for comparison in comparisons:
        verdict = "[green]yes[/green]" if comparison.right else "[red]NO[/red]"
        table.add_row(comparison.what, f"{comparison.rows:,}", verdict)
    return table
