"""What the server says, as tables on the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
from rich.console import Console, Group
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from midstream.changes.verdict import in_bytes
from midstream.cli.figures import count, epoch, held, milliseconds, rate, seconds, when
from midstream.control.models import (
    Modification,
    ModificationDetails,
    Pipeline,
    Shadow,
    StateRows,
    StateTables,
    Verdict,
)

PHASES = {
    "applied": "green",
    "rejected": "red",
    "rolled_back": "red",
    "cancelled": "yellow",
    "undone": "yellow",
}
STATUSES = {"running": "green", "starting": "cyan", "failed": "red", "stopped": "yellow"}


def out() -> Console:
    return Console(highlight=False)


def aside() -> Console:
    """For progress and messages: what is asked for goes to stdout, and nothing else does."""
    return Console(stderr=True, highlight=False)


def raw(answer: httpx.Response) -> None:
    """What the server answered, as it answered it."""
    print(answer.text)


def raw_value(value: Any) -> None:
    print(json.dumps(value, separators=(",", ":")))


def say(text: str) -> None:
    aside().print(text, markup=False, soft_wrap=True)


def status_text(status: str) -> Text:
    return Text(status, style=STATUSES.get(status, "red"))


def phase_text(phase: str) -> Text:
    return Text(phase.replace("_", " "), style=PHASES.get(phase, "cyan"))


def plain_table(*columns: str, right: Iterable[str] = (), title: str | None = None) -> Table:
    table = Table(
        title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        table.add_column(column, justify="right" if column in set(right) else "left", overflow="fold")
    return table


def facts(pairs: Mapping[str, Any]) -> Table:
    """A name and a value on each line; what there is none of is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        if value is not None and value != "":
            grid.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    return grid


def pipeline(found: Pipeline) -> Table:
    running = found.modification
    return facts(
        {
            "pipeline": Text(found.name, style="bold"),
            "status": status_text(found.status),
            "failure": Text(found.failure, style="red") if found.failure else None,
            "epoch": epoch(found.epoch),
            "plan": found.plan,
            "rows/s": rate(found.rows_per_second),
            "epoch p50, p99": f"{milliseconds(found.epoch_p50_ms)} ms, {milliseconds(found.epoch_p99_ms)} ms",
            "state": held(found.state_rows, found.state_bytes),
            "change": f"{running.id} {running.text}: {running.phase}" if running is not None else None,
            "changeable": None if found.changeable else "no",
            "trigger": found.trigger,
            "checkpoint": found.checkpoint,
            "started": when(found.started_at),
            "midstream, Spark": f"{found.version}, {found.spark}",
            "page": found.page,
            "your role": found.role,
        }
    )


def history(changes: Iterable[Modification]) -> Table:
    table = plain_table("id", "when", "change", "phase", "epoch", "plan", "cost", "by", right=("id", "epoch", "plan"))
    for change in changes:
        text = Text(change.text)
        if change.reason:
            text.append(f"\n{change.reason}", style="dim")
        table.add_row(
            str(change.id),
            when(change.submitted_at) if change.submitted_at is not None else "–",
            text,
            phase_text(change.phase),
            count(change.epoch),
            count(change.plan),
            seconds(change.seconds["total"]) if "total" in change.seconds else "–",
            Text(change.by or "–"),
        )
    return table


def code(change: ModificationDetails) -> Group:
    """The code that came with a change."""
    parts: list[Text | Syntax] = []
    for source in change.sources:
        title = f"change {change.id}: {source.function}, {source.file}:{source.line}, sha256 {source.sha256}"
        parts += [Text(title, style="bold"), Syntax(source.text, "python", background_color="default")]
    return Group(*parts)


def cost(change: Modification) -> Text:
    """One line: where it took effect and what it cost."""
    parts = [f"{name} {seconds(change.seconds[name])}" for name in COSTS if name in change.seconds]
    text = Text(f"change {change.id} ")
    text.append_text(phase_text(change.phase))
    if change.epoch is not None:
        text.append(f" in epoch {change.epoch}")
    if change.plan is not None:
        text.append(f" (plan {change.plan})")
    return text.append(f": {', '.join(parts)}" if parts else "")


COSTS = ("submit", "wait", "perform", "total")


def verdict(found: Verdict) -> Text:
    """The verdict as the server words it, coloured like a diff."""
    text = Text()
    styles = {"+": "green", "-": "red", "~": "yellow"}
    for line in found.text.splitlines():
        mark = line.removeprefix("  ")[:1] if line.startswith("  ") else ""
        style = "bold red" if line.startswith("LOSES STATE") else styles.get(mark, "")
        text.append(f"{line}\n", style=style)
    text.right_crop(1)
    return text


def shadow(found: Shadow) -> Group:
    head = Text(f"shadow of {found.change}: {found.epochs} epochs compared", style="bold")
    table = plain_table("", "rows before", "rows after", "changed", "only before", "only after", right=NUMBERS)
    samples = []
    for kind, compared in (("output", found.outputs), ("state", found.state)):
        for name, difference in compared.items():
            numbers = (
                difference.rows_old,
                difference.rows_new,
                difference.changed,
                difference.only_old,
                difference.only_new,
            )
            table.add_row(f"{kind} {name}", *(f"{number:,}" for number in numbers))
            if difference.samples:
                samples += [Text(f"{kind} {name}, for instance", style="dim")]
                samples += [Text(f"  {old}  →  {new}") for old, new in difference.samples]
    costs = f"costs {milliseconds(found.shadow_ms)} ms an epoch beside {milliseconds(found.epoch_ms)} ms"
    parts: list[Any] = [head, table, *samples, Text(f"{costs}, {in_bytes(found.written_bytes)} written", style="dim")]
    if found.error:
        parts.append(Text(f"ended: {found.error}", style="red"))
    return Group(*parts)


NUMBERS = ("rows before", "rows after", "changed", "only before", "only after")


def state_tables(found: StateTables) -> Group:
    table = plain_table("step", "table", "keys", "columns", "rows", "bytes", right=("rows", "bytes"))
    for each in found.tables:
        table.add_row(
            each.step, each.table, ", ".join(each.keys), ", ".join(each.columns), f"{each.rows:,}", in_bytes(each.bytes)
        )
    epochs = f"epochs {found.epochs[0]} to {found.epochs[-1]} can be read" if found.epochs else "no epoch yet"
    return Group(table, Text(epochs, style="dim"))


def state_rows(found: StateRows) -> Group:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    numeric = {index for index in range(len(found.columns)) if _are_numbers(found.rows, index)}
    for index, column in enumerate(found.columns):
        style = "cyan" if column in found.keys else None
        table.add_column(column, style=style, justify="right" if index in numeric else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*(Text("null", style="dim") if value is None else Text(_cell(value)) for value in row))
    shown = f"{len(found.rows):,} of {found.matched:,} rows" if len(found.rows) != found.matched else "all rows"
    where = f"{found.step}, table {found.table}, epoch {found.epoch}"
    return Group(table, Text(f"{shown} of {where}", style="dim"))


def _are_numbers(rows: list[list[Any]], index: int) -> bool:
    values = [row[index] for row in rows if row[index] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
