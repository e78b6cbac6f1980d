"""The command `midstream`."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version

import typer
from rich.console import Console

from midstream.bench.commands import app as bench
from midstream.demo import demo
from midstream.errors import MidstreamError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Stateful PySpark streaming whose running pipelines can be changed.",
)
app.add_typer(bench, name="bench")
app.command()(demo)


@app.command()
def version() -> None:
    """Print the installed version.

    Example: midstream version
    """
    print(installed_version("midstream"))


def main() -> None:
    """Run the command; an error of ours is told without a traceback, and the exit status is 1."""
    try:
        app()
    except MidstreamError as error:
        Console(stderr=True).print(f"{error}", style="red", markup=False, highlight=False)
        sys.exit(1)
