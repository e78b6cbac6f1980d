"""`midstream state`: look into the state of a keyed step, of a running pipeline or of a checkpoint."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from pydantic import BaseModel
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from midstream.cli import show
from midstream.cli.client import LONG, Remote, read
from midstream.cli.failures import CommandError
from midstream.cli.options import Connection, pairs
from midstream.control.models import StateRows, StateTables
from midstream.control.statepages import rows_of, tables_of
from midstream.state.browse import export, manifest_at, table_of
from midstream.state.ledger import committed_epochs
from midstream.state.store import Store, open_store

_LOOKING = "Which rows"


@dataclass(frozen=True)
class Looking:
    """Which rows of which table."""

    table: Annotated[
        str | None, typer.Option(help="A table of the step. Default: its first.", rich_help_panel=_LOOKING)
    ] = None
    epoch: Annotated[
        int | None, typer.Option(min=0, help="Any that is retained. Default: the last.", rich_help_panel=_LOOKING)
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Rows that have this; may be repeated.", rich_help_panel=_LOOKING),
    ] = None
    count: Annotated[
        bool, typer.Option("--count", metavar="", help="Only how many there are.", rich_help_panel=_LOOKING)
    ] = False
    limit: Annotated[int, typer.Option(min=0, max=10_000, help="Most rows to show.", rich_help_panel=_LOOKING)] = 100
    offset: Annotated[int, typer.Option(min=0, help="Rows to leave out before.", rich_help_panel=_LOOKING)] = 0

    @property
    def filters(self) -> dict[str, str]:
        return pairs(self.where, "--where", "COLUMN=VALUE")

    @property
    def rows(self) -> int:
        return 0 if self.count else self.limit


@dataclass(frozen=True)
class Answer:
    """What is shown, and its JSON as the server gives it."""

    found: Any
    text: str


class Holder(Protocol):
    """Whoever can be asked for state."""

    def tables(self) -> Answer: ...

    def rows(self, step: str, looking: Looking) -> Answer: ...

    def export(self, step: str, looking: Looking, target: Path, progress: Progress) -> None: ...


def state(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The pipeline. Not with --checkpoint.")] = None,
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="The step. Without it, the tables there are.")
    ] = None,
    *,
    looking: Looking,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows that match to a Parquet file.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Read a checkpoint itself, also of a pipeline that does not run."),
    ] = None,
    store_option: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="For the checkpoint's store; may be repeated.")
    ] = None,
    connection: Connection,
) -> None:
    """Read the state of a keyed step, at the last or at any retained epoch.

    Example: midstream state orders totals --where customer=42
    """
    if checkpoint is not None:
        if step is not None:
            raise typer.BadParameter("with --checkpoint there is no name of a pipeline.", param_hint="NAME")
        _look(
            _Checkpoint(open_store(checkpoint, pairs(store_option, "--store-option"))),
            name,
            looking,
            export,
            connection,
        )
    elif name is None:
        raise typer.BadParameter("name a pipeline, or give --checkpoint.", param_hint="NAME")
    else:
        with connection.open(name) as remote:
            _look(_Running(remote), step, looking, export, connection)


def _look(holder: Holder, step: str | None, looking: Looking, target: Path | None, connection: Connection) -> None:
    if target is not None:
        if step is None:
            raise typer.BadParameter("name the step to export.", param_hint="STEP")
        _export(holder, step, looking, target)
        return
    answer = holder.rows(step, looking) if step is not None else holder.tables()
    if connection.as_json:
        print(answer.text)
    elif isinstance(answer.found, StateTables):
        show.out().print(show.state_tables(answer.found))
    elif looking.count:
        print(answer.found.matched)
    else:
        show.out().print(show.state_rows(answer.found))


def _export(holder: Holder, step: str, looking: Looking, target: Path) -> None:
    # Beside it first: a file that breaks off in the middle would look like one.
    beside = target.with_name(f".{target.name}.part")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(30))
    try:
        with Progress(*columns, *_progress(holder), console=show.aside(), transient=True) as progress:
            holder.export(step, looking, beside, progress)
        beside.replace(target)
    except OSError as cause:
        raise CommandError.not_writable(target, cause.strerror or cause) from cause
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    show.say(f"written to {target}")


@dataclass(frozen=True)
class _Running:
    """A pipeline that runs, asked by its server."""

    remote: Remote

    def tables(self) -> Answer:
        answer = self.remote.get("state")
        return Answer(read(StateTables, answer), answer.text)

    def rows(self, step: str, looking: Looking) -> Answer:
        params = {**_params(looking), "limit": looking.rows, "offset": looking.offset}
        answer = self.remote.client.ask("GET", self.remote.path("state", step), params=params, seconds=LONG)
        return Answer(read(StateRows, answer), answer.text)

    def export(self, step: str, looking: Looking, target: Path, progress: Progress) -> None:
        path = self.remote.path("state", step, "export")
        task = progress.add_task(f"exporting {step}", total=None)
        with (
            self.remote.client.stream(path, params=_params(looking), seconds=LONG) as answer,
            target.open("wb") as file,
        ):
            size = answer.headers.get("Content-Length")
            progress.update(task, total=int(size) if size is not None else None)
            for chunk in answer.iter_bytes():
                file.write(chunk)
                progress.advance(task, len(chunk))


@dataclass(frozen=True)
class _Checkpoint:
    """A checkpoint, read without any server."""

    store: Store

    def tables(self) -> Answer:
        return _given(tables_of(manifest_at(self.store), committed_epochs(self.store)))

    def rows(self, step: str, looking: Looking) -> Answer:
        manifest = manifest_at(self.store, looking.epoch)
        table, where = looking.table, looking.filters
        return _given(rows_of(self.store, manifest, step, table, where, looking.rows, looking.offset))

    def export(self, step: str, looking: Looking, target: Path, progress: Progress) -> None:
        manifest = manifest_at(self.store, looking.epoch)
        _, table = table_of(manifest, step, looking.table)
        task = progress.add_task(f"exporting {step}", total=table.rows)
        for written in export(self.store, manifest, step, looking.table, target, looking.filters):
            progress.update(task, completed=written)


def _given(found: BaseModel) -> Answer:
    return Answer(found, found.model_dump_json())


def _params(looking: Looking) -> dict[str, Any]:
    said = {"table": looking.table, "epoch": looking.epoch}
    where = [f"{column}={value}" for column, value in looking.filters.items()]
    return {**{word: value for word, value in said.items() if value is not None}, "where": where}


def _progress(holder: Holder) -> tuple[Any, ...]:
    return (DownloadColumn(),) if isinstance(holder, _Running) else (MofNCompleteColumn(),)
