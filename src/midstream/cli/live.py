"""What there is to see of a pipeline while it runs, kept up to date by its events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median

from pydantic import BaseModel, TypeAdapter
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from midstream.cli import show
from midstream.cli.events import Event
from midstream.cli.figures import count, held, milliseconds, rate, seconds, spark_line
from midstream.cli.follow import PHASES
from midstream.control.models import Epoch, Graph, Modification, Pipeline, Shadow
from midstream.quantiles import percentile

RECENT = 10
"""Epochs that rates are taken over."""

KEPT = 120
"""Epochs that percentiles and the curve are taken over."""

_LINGERS = 30.0
"""Seconds a change that is done stays in view."""


class Ending(BaseModel):
    status: str
    failure: str | None = None


class View:
    """A pipeline as its events tell it. What is not known yet is not shown."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pipeline: Pipeline | None = None
        self.graph: Graph | None = None
        self.epochs: deque[Epoch] = deque(maxlen=KEPT)
        self.change: Modification | None = None
        self.shadow: Shadow | None = None
        self.ending: Ending | None = None
        self.lost = False
        self._changed_at = 0.0
        self._takes: dict[str, Callable[[str], None]] = {
            "hello": self._hello,
            "change": self._change,
            "graph": self._graph,
            "shadow": self._shadow,
            "status": self._status,
        }

    def take(self, event: Event) -> bool:
        """Bring the view up to date, and say whether that was a new epoch. Unknown kinds of events are left out."""
        if event.kind == "epoch":
            return self.add(Epoch.model_validate_json(event.data))
        if event.kind in self._takes:
            self._takes[event.kind](event.data)
        return False

    def _hello(self, data: str) -> None:
        self.pipeline = Pipeline.model_validate_json(data)
        self.lost = False
        if self.pipeline.modification is not None:
            self._note(self.pipeline.modification)

    def _change(self, data: str) -> None:
        self._note(Modification.model_validate_json(data))

    def _graph(self, data: str) -> None:
        self.graph = Graph.model_validate_json(data)

    def _shadow(self, data: str) -> None:
        self.shadow = TypeAdapter(Shadow | None).validate_json(data)

    def _status(self, data: str) -> None:
        self.ending = Ending.model_validate_json(data)

    def lose(self) -> None:
        """The connection is gone, until there is another `hello`."""
        self.lost = True

    def add(self, epoch: Epoch) -> bool:
        """Note an epoch, unless it is there; after a lost connection some come twice."""
        if self.epochs and epoch.epoch <= self.epochs[-1].epoch:
            return False
        self.epochs.append(epoch)
        return True

    def _note(self, change: Modification) -> None:
        self.change = change
        self._changed_at = time.monotonic()

    @property
    def status(self) -> str:
        if self.ending is not None:
            return self.ending.status
        if self.lost:
            return "connection lost, trying again"
        if self.pipeline is None:
            return "connecting"
        return "running" if self.epochs else self.pipeline.status

    @property
    def rows_per_second(self) -> float | None:
        return self._rate(lambda epoch: epoch.rows)

    def _rate(self, rows: Callable[[Epoch], int]) -> float | None:
        """Rows from the beginning of an epoch to the beginning of another, so that pauses count."""
        recent = list(self.epochs)[-RECENT:]
        if len(recent) < 2:
            return None
        span = (recent[-1].started_at - recent[0].started_at).total_seconds()
        return sum(rows(epoch) for epoch in recent[:-1]) / max(span, 0.001)

    def line(self) -> str:
        """The last epoch, for where there is no terminal."""
        last = self.epochs[-1]
        told = (
            f"epoch {last.epoch}: {last.rows:,} rows in {milliseconds(last.duration_ms)} ms,"
            f" {rate(self.rows_per_second)} rows/s, state {held(last.state_rows, last.state_bytes)}, plan {last.plan}"
        )
        if self.change is not None and self.change.under_way:
            told += f", change {self.change.id} {self.change.phase}"
        return told

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._head()]
        if self.epochs:
            parts += [Text(""), self._steps()]
        if self.change is not None and (self.change.under_way or time.monotonic() - self._changed_at < _LINGERS):
            parts += [Text(""), change_panel(self.change)]
        if self.shadow is not None:
            told = f"shadow of {self.shadow.change}: {self.shadow.epochs} epochs compared"
            parts += [Text(""), Text(told, style="cyan")]
        return Group(*parts)

    def _head(self) -> Table:
        durations = [epoch.duration_ms for epoch in self.epochs]
        last = self.epochs[-1] if self.epochs else None
        latency: str | None = None
        if last is not None:
            latency = (
                f"{milliseconds(last.duration_ms)} ms   p50 {milliseconds(median(durations))}"
                f"   p99 {milliseconds(percentile(durations, 99))}"
            )
        return show.facts(
            {
                "pipeline": Text.assemble((self.name, "bold"), "  ", show.status_text(self.status)),
                "epoch": f"{count(last.epoch)}   plan {last.plan}" if last is not None else None,
                "latency": latency,
                "": Text(spark_line(durations[-60:]), style="cyan") if durations else None,
                "rows/s": rate(self.rows_per_second) if last is not None else None,
                "state": held(last.state_rows, last.state_bytes) if last is not None else None,
            }
        )

    def _steps(self) -> Table:
        last = self.epochs[-1]
        late = ("late",) if any(figures.late_rows for figures in last.steps.values()) else ()
        table = show.plain_table("step", "kind", "rows/s", "ms", "state", *late, right=("rows/s", "ms", "late"))
        known = {step.id: step for step in self.graph.steps} if self.graph is not None else {}
        for id_ in [*known, *(id_ for id_ in last.steps if id_ not in known)]:
            figures = last.steps.get(id_)
            step = known.get(id_)
            rows = self._rate(lambda epoch: epoch.steps[id_].rows if id_ in epoch.steps else 0)  # noqa: B023
            table.add_row(
                Text(id_, style="bold"),
                step.kind if step is not None else "",
                rate(rows) if figures is not None else "–",
                milliseconds(figures.slowest_ms) if figures is not None else "–",
                held(figures.state_rows, figures.state_bytes) if figures is not None else "–",
                *(count(figures.late_rows) if figures is not None else "–" for _ in late),
            )
        return table


def change_panel(change: Modification) -> Panel:
    """A change with its phases, the time each took, and how far it is."""
    line = Text()
    for index, phase in enumerate(PHASES):
        if index:
            line.append(" → ", style="dim")
        begun = phase in change.times
        line.append(phase, style="bold cyan" if phase == change.phase else "" if begun else "dim")
        took = _took(change, index)
        if took is not None:
            line.append(f" {seconds(took)}", style="dim")
    if change.phase not in PHASES:
        line.append(" → ", style="dim").append_text(show.phase_text(change.phase))
    parts: list[RenderableType] = [line]
    if change.reason:
        parts.append(Text(change.reason, style="red" if change.phase in ("rejected", "rolled_back") else ""))
    if not change.under_way and change.seconds:
        parts.append(show.cost(change))
    return Panel(
        Group(*parts), title=Text(f"change {change.id}: {change.text}"), title_align="left", border_style="dim"
    )


def _took(change: Modification, index: int) -> float | None:
    """From the beginning of a phase to that of the next there was, or to now."""
    phase = PHASES[index]
    if phase not in change.times or phase == "applied":
        return None
    later = [at for at in change.times.values() if at > change.times[phase]]
    if later:
        return min(later) - change.times[phase]
    return time.time() - change.times[phase] if change.under_way else None
