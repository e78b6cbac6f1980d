"""The program `midstream`: its commands, and what errors it ends with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version as installed_version

import typer
from rich.console import Console

from midstream.cli.apply import cancel, promote, undo
from midstream.cli.doctor import doctor
from midstream.cli.exits import MEANINGS, Exit
from midstream.cli.later import CHANGE, CHECK, LOOK, Program
from midstream.cli.look import graph, history, ls, status
from midstream.cli.spread import spread
from midstream.cli.state import state
from midstream.cli.stop import stop
from midstream.cli.watch import watch
from midstream.errors import MidstreamError

PREFIX = "MIDSTREAM"
"""Every option has an environment variable that begins with it."""

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    help="Stateful PySpark streaming whose running pipelines can be changed.",
    epilog="Exit codes:\n" + "\n".join(f"  {code.value}  {meaning}" for code, meaning in MEANINGS.items()),
    context_settings={"auto_envvar_prefix": PREFIX, "help_option_names": ["--help", "-h"]},
)
_LOOKING: tuple[Callable[..., None], ...] = (ls, status, graph, history, watch, state)
_CHANGING: tuple[Callable[..., None], ...] = (promote, undo, cancel, stop)
for command in _LOOKING:
    app.command(rich_help_panel=LOOK)(spread(command))
for command in _CHANGING:
    app.command(rich_help_panel=CHANGE)(spread(command))
app.command(rich_help_panel=CHECK)(doctor)


@app.command(rich_help_panel=CHECK)
def version() -> None:
    """Print the installed version.

    Example: midstream version
    """
    print(installed_version("midstream"))


def main() -> None:
    """Run the command; an error of ours is told without a traceback, and ends it with its exit code."""
    try:
        app(prog_name="midstream")
    except MidstreamError as error:
        Console(stderr=True).print(f"{error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(getattr(error, "exit_code", Exit.ERROR))
