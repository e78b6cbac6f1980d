"""`midstream watch`: a pipeline while it runs, until Ctrl-C."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Annotated

import typer
from rich.live import Live

from midstream.cli import show
from midstream.cli.client import Remote, read
from midstream.cli.events import events
from midstream.cli.failures import CommandError
from midstream.cli.live import KEPT, View
from midstream.cli.options import Connection, Name
from midstream.control.models import Epoch, Graph


def watch(
    name: Name,
    connection: Connection,
    epochs: Annotated[int | None, typer.Option(min=1, help="End after so many epochs. Default: with Ctrl-C.")] = None,
) -> None:
    """Watch a pipeline live: epochs, latency, steps, and the change that is being made.

    Where there is no terminal it prints a line an epoch; with -o json, each epoch as the server tells it.

    Example: midstream watch orders
    """
    view = View(name)
    console = show.out()
    live = console.is_terminal and not connection.as_json
    with (
        connection.open(name) as remote,
        suppress(KeyboardInterrupt),
        Live(view, console=console, refresh_per_second=4) if live else nullcontext(),
    ):
        if live:
            _look_back(remote, view)
        seen = 0
        for event in events(remote, on_loss=view.lose):
            if view.take(event):
                seen += 1
                if connection.as_json:
                    print(event.data, flush=True)
                elif not live:
                    console.print(view.line(), markup=False, soft_wrap=True)
            if view.ending is not None or seen == epochs:
                break
    if view.ending is not None:
        if view.ending.failure is not None:
            raise CommandError("PIPELINE_FAILED", f"'{name}' has failed: {view.ending.failure}")
        show.say(f"'{name}' has {view.ending.status}")


def _look_back(remote: Remote, view: View) -> None:
    """What there was before the first event, so that there is something to see at once."""
    view.graph = read(Graph, remote.get("graph"))
    for epoch in read(list[Epoch], remote.get("epochs", last=KEPT)):
        view.add(epoch)
