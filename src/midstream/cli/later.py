"""Commands that are loaded when they are called: to look at a pipeline, nobody needs to wait for Spark or a server."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

ORDER = ("run", "ls", "status", "graph", "history", "watch", "state", "plan", "apply", "shadow", "promote", "undo")
"""How commands are listed; those not named here come behind, as they were added."""

RUN, LOOK, CHANGE, CHECK = "Run", "Look", "Change", "Try and check"

LATER = {
    "run": ("midstream.cli.run", "run", RUN),
    "plan": ("midstream.cli.changing", "plans", CHANGE),
    "apply": ("midstream.cli.changing", "applies", CHANGE),
    "shadow": ("midstream.cli.changing", "shadows", CHANGE),
    "demo": ("midstream.demo.command", "demo", CHECK),
    "bench": ("midstream.bench.commands", "app", CHECK),
}
"""Where a command is found, and its panel in `--help`."""


class Program(TyperGroup):
    """A group some of whose commands are found at first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = [*dict.fromkeys([*super().list_commands(ctx), *LATER])]
        return [name for name in ORDER if name in names] + [name for name in names if name not in ORDER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in LATER:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.list_commands(ctx):
            for name in LATER:  # for "did you mean"
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    module, attribute, panel = LATER[name]
    found = getattr(import_module(module), attribute)
    around = typer.Typer(add_completion=False)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name, rich_help_panel=panel)
        group: Any = get_command(around)
        return group.commands[name]
    around.command(name, rich_help_panel=panel)(found)
    return get_command(around)
