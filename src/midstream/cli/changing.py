"""`midstream plan|apply|shadow NAME CHANGE …`: a group for each of the three, a command in it for each change."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from midstream.cli.apply import apply, discard_shadow, plan, shadow, show_shadow
from midstream.cli.changefile import SUFFIXES, read_changes
from midstream.cli.options import Name
from midstream.cli.spread import Spread, with_parameters
from midstream.cli.words import KINDS, file, request_of

Act = Callable[..., None]

CHANGES = "Changes"

_FILE = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE.yaml", help="Make the changes of a YAML file, all or none.")
]
_STATUS = Annotated[bool, typer.Option("--status", metavar="", help="Show what the shadow has found so far.")]
_DISCARD = Annotated[bool, typer.Option("--discard", metavar="", help="End the shadow and leave nothing behind.")]


class ChangeGroup(TyperGroup):
    """A group whose name of a pipeline comes before its options, and for which a YAML file is a change, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) == 2 and args[0] in self.commands and args[1] in ctx.help_option_names:
            args = ["NAME", *args]
        return super().parse_args(ctx, self._name_last(ctx, args))

    def _name_last(self, ctx: Any, args: list[str]) -> list[str]:
        """`orders --file x remove eu` as `--file x orders remove eu`: options end where the first argument is."""
        flags = {
            name: getattr(param, "is_flag", False)
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
        }

        def behind_options(begin: int) -> int:
            while begin < len(args) and args[begin].startswith("-") and args[begin] != "--":
                begin += 1 if flags.get(args[begin], True) else 2
            return begin

        name = behind_options(0)
        if name >= len(args):
            return args
        end = behind_options(name + 1)
        return [*args[:name], *args[name + 1 : end], args[name], *args[end:]]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0].endswith(SUFFIXES):
            args = ["file", *args]
        elif args[0] not in self.commands and ctx.params.get("name") in self.commands:
            ctx.fail(f"The name of the pipeline comes first: {ctx.info_name} NAME {ctx.params['name']} {args[0]} …")
        return super().resolve_command(ctx, args)


def group(act: Act, text: str, alone: dict[str, tuple[Any, Act]] | None = None) -> typer.Typer:
    """The commands of what is done with a change. `alone` are flags that go without one, and what they do."""
    verb, done = act.__name__, Spread(act, left_out=("name", "draft"))
    flags = alone or {}
    app = typer.Typer(
        cls=ChangeGroup, help=text, invoke_without_command=True, subcommand_metavar="CHANGE [ARGS]...", name=verb
    )

    def begin(ctx: typer.Context, **given: Any) -> None:
        if ctx.invoked_subcommand is not None:
            return
        said = [does for flag, (_, does) in flags.items() if given[flag]]
        if given["file"] is not None:
            done(given, name=given["name"], draft=read_changes(given["file"]))
        elif said or flags:
            does = said[0] if said else next(iter(flags.values()))[1]
            Spread(does, left_out=("name",))(given, name=given["name"])
        else:
            ctx.fail(f"Say what to change: {', '.join(kind.__name__ for kind in (*KINDS, file))}, or --file.")

    own = [_named("name", Name), _named("file", _FILE, None)]
    own += [_named(flag, hint, False) for flag, (hint, _) in flags.items()]
    app.callback()(with_parameters(begin, [_CONTEXT, *own, *done.parameters], name=verb, doc=text))
    for kind in KINDS:
        app.command(rich_help_panel=CHANGES)(_command(Spread(kind), done, verb, words=True))
    app.command(rich_help_panel=CHANGES)(_command(Spread(file), done, verb, words=False))
    return app


def _command(kind: Spread[Any], done: Spread[None], verb: str, *, words: bool) -> Act:
    def command(ctx: typer.Context, **given: Any) -> None:
        assert ctx.parent is not None
        given |= _said_before(ctx, ctx.parent)
        said = kind(given)
        done(given, name=ctx.parent.params["name"], draft=request_of(said) if words else said)

    function = kind.function
    doc = (function.__doc__ or "").replace("midstream apply", f"midstream {verb}")
    parameters = [_CONTEXT, *kind.parameters, *done.parameters]
    return with_parameters(command, parameters, name=function.__name__, doc=doc)


def _said_before(ctx: Any, parent: Any) -> dict[str, Any]:
    """Options that were given before the change, unless they are given again behind it."""

    def rank(context: Any, name: str) -> int:
        source = context.get_parameter_source(name)
        return _GIVEN.index(source.name) if source is not None and source.name in _GIVEN else -1

    return {
        name: value
        for name, value in parent.params.items()
        if name in ctx.params and rank(parent, name) > rank(ctx, name)
    }


_GIVEN = ("ENVIRONMENT", "COMMANDLINE")


def _named(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


_CONTEXT = _named("ctx", typer.Context)

plans = group(
    plan,
    """Tell what a change would do, and do nothing: steps and state it touches, what it moves, the pause to expect.

    Example: midstream plan orders rescale totals 8
    """,
)
applies = group(
    apply,
    """Change a running pipeline at an epoch boundary.

    Example: midstream apply orders replace clean --with fixes.py:clean
    """,
)
shadows = group(
    shadow,
    """Run a change beside the pipeline, on the same epochs, and compare. Without a change: what it has found so far.

    Example: midstream shadow orders --epochs 5 replace clean --with fixes.py:clean
    """,
    {"status": (_STATUS, show_shadow), "discard": (_DISCARD, discard_shadow)},
)
