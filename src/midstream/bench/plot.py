"""The latency timeline of a migration as a picture, one line for each policy."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.bench.report import Measurement, MigrationFigures, Report
from midstream.bench.show import size
from midstream.errors import MidstreamError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")


def require_plotting(path: Path) -> None:
    """Raise what would keep a plot from being written, before anything is measured for it."""
    if path.suffix not in SUFFIXES:
        raise MidstreamError(
            "UNKNOWN_PICTURE",
            f"A plot cannot be written to '{path.name}'.",
            hint=f"give the file one of the endings {', '.join(SUFFIXES)}.",
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise MidstreamError(
            "NO_MATPLOTLIB", "A plot needs matplotlib, which is not installed.", hint="pip install 'midstream[plot]'"
        )


def plot_timeline(report: Report, path: Path) -> None:
    """Epoch times over the time since the change was asked for, on a logarithmic scale."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.subplots()
    colors = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
    drawn = {name: m for name, m in report.ours.items() if m.migration is not None}
    for number, ((name, measured), color) in enumerate(zip(drawn.items(), colors, strict=False)):
        assert measured.migration is not None
        _draw(axes, name, measured, measured.migration, color, number)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="both", axis="y", alpha=0.25)
    axes.set_xlabel("seconds since the change was submitted (the end of each epoch)")
    axes.set_ylabel("epoch [ms]")
    axes.set_title(_title(report), fontsize=11)
    figure.legend(loc="outside lower center", ncols=len(drawn), fontsize=9)
    axes.margins(x=0.03, y=0.12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw(axes: Axes, name: str, measured: Measurement, moved: MigrationFigures, color: str, number: int) -> None:
    ends, times = zip(*moved.timeline, strict=True)
    axes.plot(ends, times, color=color, marker=".", markersize=4, linewidth=1.2, label=name)
    axes.axhline(
        measured.epoch_p99_ms,
        color=color,
        linestyle="--",
        linewidth=0.9,
        alpha=0.8,
        label=f"{name}: steady p99, {measured.epoch_p99_ms:,.0f} ms",
    )
    if moved.applied_seconds is not None:
        at = min(range(len(ends)), key=lambda i: abs(ends[i] - (moved.applied_seconds or 0)))
        axes.plot(
            ends[at],
            times[at],
            color=color,
            marker="D",
            markersize=8,
            markerfacecolor="none",
            linestyle="none",
            label=f"{name}: applied after {moved.applied_seconds:,.1f} s",
        )
    peak = max(range(len(times)), key=lambda i: times[i])
    # By turns, for peaks of two policies may be in one place; never over the edge.
    left = number % 2 == 1 or ends[peak] > 0.8 * ends[-1]
    axes.annotate(
        f"peak {times[peak]:,.0f} ms",
        (ends[peak], times[peak]),
        xytext=(-8 if left else 8, 6),
        horizontalalignment="right" if left else "left",
        textcoords="offset points",
        color=color,
        fontsize=9,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
    )


def _title(report: Report) -> str:
    first = next(iter(report.ours.values()))
    state = f", {size(first.state_bytes)} of state" if first.state_bytes else ""
    return f"{report.bench}: {first.keys:,} keys{state}, {first.rows_per_second:,.0f} rows/s"
