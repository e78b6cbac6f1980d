"""`midstream ls`, `status`, `graph`, `history`: what runs, and what it does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from midstream.cli import show
from midstream.cli.client import Client, Remote, read
from midstream.cli.drawing import draw
from midstream.cli.exits import Exit
from midstream.cli.failures import CommandError
from midstream.cli.figures import count, epoch, milliseconds, rate
from midstream.cli.options import Connection, Name
from midstream.cli.where import Address, address, live_and_stale
from midstream.control.models import Graph, Modification, ModificationDetails, Pipeline, PipelineSummary


@dataclass(frozen=True)
class Found:
    """A pipeline that was looked for: what its server said, or why it said nothing."""

    name: str
    url: str
    answer: Any = None
    pipeline: Pipeline | None = None
    error: CommandError | None = None


def ls(connection: Connection) -> None:
    """List the pipelines that run on this machine, or at a server.

    Example: midstream ls
    """
    found = list(_at_server(connection) if connection.server is not None else _on_this_machine())
    if connection.as_json:
        show.raw_value([each.answer or {"name": each.name, "status": "unreachable"} for each in found])
        return
    if not found:
        show.say("No pipeline runs here. Start one: midstream run app.py:flow --checkpoint DIR")
        return
    table = show.plain_table("name", "status", "epoch", "plan", "rows/s", "p50 ms", "url", right=_NUMBERS)
    for each in found:
        pipeline = each.pipeline
        if pipeline is None:
            table.add_row(each.name, Text("unreachable", style="red"), *["–"] * len(_NUMBERS), each.url)
            continue
        table.add_row(
            pipeline.name,
            show.status_text(pipeline.status),
            epoch(pipeline.epoch),
            count(pipeline.plan),
            rate(pipeline.rows_per_second),
            milliseconds(pipeline.epoch_p50_ms),
            each.url,
        )
    show.out().print(table)
    for each in found:
        if each.error is not None:
            show.say(f"{each.name}: {each.error.message}")


_NUMBERS = ("epoch", "plan", "rows/s", "p50 ms")


def status(
    name: Name,
    connection: Connection,
    page: Annotated[
        bool,
        typer.Option(
            "--page", metavar="", help="Print the address of its page with the token in it, and nothing else."
        ),
    ] = False,
) -> None:
    """Show how a pipeline does.

    Example: midstream status orders
    """
    with connection.open(name) as remote:
        answer = remote.get()
    if page:
        at = remote.client.address
        print(f"{read(Pipeline, answer).page or at.url + '/'}#token={at.token}")
    elif connection.as_json:
        show.raw(answer)
    else:
        show.out().print(show.pipeline(read(Pipeline, answer)))


def graph(name: Name, connection: Connection) -> None:
    """Draw the steps of a pipeline and who reads whom, with rows a second and state.

    Example: midstream graph orders
    """
    with connection.open(name) as remote:
        answer = remote.get("graph")
    if connection.as_json:
        show.raw(answer)
        return
    found = read(Graph, answer)
    console = show.out()
    console.print(Text.assemble((name, "bold"), f"  plan {found.plan}, epoch {epoch(found.epoch)}"))
    console.print(draw(found, console.width), no_wrap=True, overflow="ignore", crop=False)


def history(
    name: Name,
    connection: Connection,
    last: Annotated[int | None, typer.Option(min=1, help="Only so many of the latest.")] = None,
    code: Annotated[bool, typer.Option("--code", metavar="", help="Also the code that came with each change.")] = False,
) -> None:
    """List every change a pipeline was given, with what became of it and what it cost.

    Example: midstream history orders --last 10
    """
    with connection.open(name) as remote:
        answer = remote.get("history") if last is None or code else remote.get("changes", last=last)
    if connection.as_json:
        show.raw(answer)
        return
    changes = read(list[Modification], answer)[-(last or 0) :]
    if not changes:
        show.say(f"'{name}' was given no changes")
        return
    console = show.out()
    console.print(show.history(changes))
    if code:
        for change in read(list[ModificationDetails], answer)[-(last or 0) :]:
            console.print(show.code(change))


def _on_this_machine() -> Iterator[Found]:
    live, stale = live_and_stale()
    for run in stale:
        show.say(f"'{run.name}' (process {run.pid}) is gone; its run file was left behind, and is removed now")
    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(lambda run: _ask(run.name, Address.of(run)), live)


def _at_server(connection: Connection) -> Iterator[Found]:
    at = address(None, connection.server, connection.token, connection.token_file, connection.cafile)
    with Client(at) as client:
        for summary in read(list[PipelineSummary], client.ask("GET", "/v1/pipelines")):
            yield _ask(summary.name, at)


def _ask(name: str, at: Address) -> Found:
    try:
        with Remote(name, Client(at)) as remote:
            answer = remote.client.ask("GET", remote.path(), seconds=5)
            return Found(name, at.url, answer.json(), read(Pipeline, answer))
    except CommandError as error:
        if error.exit_code not in (Exit.UNREACHABLE, Exit.NOT_ALLOWED):
            raise
        return Found(name, at.url, error=error)
