"""Options that several commands have: where the pipeline is, how to print, whether to wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from midstream.cli.client import Client, Remote
from midstream.cli.where import address

CONNECTION = "Connection and output"
"""The panel of `--help` these options are in: every command has them, few people need them."""

WAITING = "Waiting"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline, as `midstream ls` names it.")]


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True)
class Connection:
    """The server of a pipeline, and how to print what it says."""

    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="MIDSTREAM_SERVER",
            help="Address of the pipeline's server. Default: that of the pipeline of this name on this machine.",
            rich_help_panel=CONNECTION,
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            envvar="MIDSTREAM_TOKEN",
            help="Token to show. Others can see it in the list of processes: prefer the variable or --token-file.",
            rich_help_panel=CONNECTION,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="MIDSTREAM_TOKEN_FILE",
            help="File that holds the token.",
            rich_help_panel=CONNECTION,
        ),
    ] = None
    cafile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="MIDSTREAM_CAFILE",
            help="Certificate (PEM) that the server's must be signed with.",
            rich_help_panel=CONNECTION,
        ),
    ] = None
    output: Annotated[
        Output,
        typer.Option(
            "--output",
            "-o",
            envvar="MIDSTREAM_OUTPUT",
            help="For people, or what the server answers and nothing else.",
            rich_help_panel=CONNECTION,
        ),
    ] = Output.TABLE

    def open(self, name: str) -> Remote:
        return Remote(name, Client(address(name, self.server, self.token, self.token_file, self.cafile)))

    @property
    def as_json(self) -> bool:
        return self.output is Output.JSON


@dataclass(frozen=True)
class Waiting:
    """Whether to stay until it is done."""

    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--detach",
            envvar="MIDSTREAM_WAIT",
            help="Wait until it is done, or leave as soon as it is handed in.",
            metavar="",
            rich_help_panel=WAITING,
        ),
    ] = True
    timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            envvar="MIDSTREAM_TIMEOUT",
            help="How long to wait. What takes longer goes on by itself.",
            rich_help_panel=WAITING,
        ),
    ] = 300


def pairs(given: Iterable[str] | None, option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """What a repeated option says, by name.

    >>> pairs(["n=count(*)", "late = a = b"], "--aggregate")
    {'n': 'count(*)', 'late': 'a = b'}
    """
    found = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"'{text}' is not of the form {form}.", param_hint=option)
        found[name.strip()] = value.strip()
    return found
