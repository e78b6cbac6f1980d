"""`python -m midstream.cli.reference`: the reference of the command, made from the command itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from midstream.cli.changes import KINDS, known_words
from midstream.cli.exits import MEANINGS
from midstream.cli.program import PREFIX, app

HEAD = """\
# The command `midstream`

This page is made from the program: `make docs-cli` writes it, and a test compares the two. `--help` behind any command
shows the same. How commands find a pipeline, and what the server behind them does, is in [control.md](control.md).

Every option can also be given as an environment variable, named beside it; several values of an option that may be
repeated are separated by spaces. The command line goes before the environment. `MIDSTREAM_HOME` is the directory in
which runs are found (default: `~/.midstream`).
"""


FILES = """\
## Files of changes

`midstream apply orders changes.yaml` makes several changes at one boundary, all of them or none; `plan` and `shadow`
take such a file, too. An entry begins with a change and what it is about; the words that may follow are in the table.
Code is looked for beside the file.

```yaml
changes:
  - replace: clean
    with: fixes.py:clean
    guard: {errors: "amount < 0", epochs: 20}
  - insert: eu
    after: clean
    sql: SELECT * FROM input WHERE country = 'DE'
  - rescale: totals
    to: 8
  - tune: {rows_per_epoch: 200000}
allow_state_loss: false
```

| change | words |
| --- | --- |
"""


def reference() -> str:
    """The whole page."""
    root: Any = get_command(app)
    context = _context(root, "midstream", None)
    parts = [HEAD, "## Exit codes\n", _exits(), "## Commands\n", _overview(root, context)]
    for name in root.list_commands(context):
        parts += _sections(root.get_command(context, name), name, context, root)
    parts.append(_files())
    return "\n".join(parts).rstrip() + "\n"


def _exits() -> str:
    rows = [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["| code | meaning |", "| --- | --- |", *rows]) + "\n"


def _files() -> str:
    rows = []
    for kind in KINDS:
        words = [word for word in known_words(kind) if word not in ("step", "code", "executor")]
        rows.append(f"| `{kind}` | {', '.join(f'`{word}`' for word in words)} |")
    return FILES + "\n".join(rows) + "\n"


def _overview(root: Any, context: Any) -> str:
    commands = [(name, root.get_command(context, name)) for name in root.list_commands(context)]
    rows = [
        f"| [`{name}`](#midstream-{name}) | {_cell(_paragraphs(command)[0])} |"
        for name, command in commands
        if not command.hidden
    ]
    return "\n".join(["| command | |", "| --- | --- |", *rows]) + "\n"


def _sections(command: Any, name: str, parent: Any, root: Any) -> Iterator[str]:
    """A command, and those below it."""
    if command.hidden:
        return
    context = _context(command, name, parent)
    level = "###" if parent.parent is None else "####"
    yield f"{level} midstream {_path(context)}\n"
    yield from (f"{paragraph}\n" for paragraph in _paragraphs(command))
    yield f"```\n{_usage(command, context)}\n```\n"
    known = {param.name for param in parent.command.params} if parent.parent is not None else set()
    own = [param for param in command.params if param.name not in known]
    yield from _tables(own, context)
    if len(own) < len(command.params):
        yield f"The options of [`midstream {_path(parent)}`](#midstream-{_anchor(parent)}) go here, too.\n"
    children = getattr(command, "commands", {})
    twin = root.get_command(context, "apply") if name in ("plan", "shadow") and parent.parent is None else None
    if twin is not None and set(children) == set(twin.commands):
        yield (
            "The changes and their options are those of [`midstream apply`](#midstream-apply); in the names of"
            f" variables `{name.upper()}` takes the place of `APPLY`.\n"
        )
        return
    for child_name, child in children.items():
        yield from _sections(child, child_name, context, root)


def _tables(params: list[Any], context: Any) -> Iterator[str]:
    records = [(param, param.get_help_record(context)) for param in params]
    for kind, title in (("argument", "argument"), ("option", "option")):
        rows = [record for param, record in records if record is not None and param.param_type_name == kind]
        if rows:
            lines = [f"| `{_cell(left)}` | {_cell(right)} |" for left, right in rows]
            yield "\n".join([f"| {title} | |", "| --- | --- |", *lines]) + "\n"


def _usage(command: Any, context: Any) -> str:
    """On one line, whatever the width of the terminal."""
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _paragraphs(command: Any) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    found = [re.sub(r"\s*\n\s*", " ", paragraph).strip() for paragraph in re.split(r"\n\s*\n", text)]
    return [re.sub(r"^Example: (.+)$", r"Example: `\1`", paragraph) for paragraph in found if paragraph]


def _path(context: Any) -> str:
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(names)


def _anchor(context: Any) -> str:
    return _path(context).replace(" ", "-")


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _context(command: Any, name: str, parent: Any) -> Any:
    prefix = PREFIX if parent is None else None
    return typer.Context(command, info_name=name, parent=parent, auto_envvar_prefix=prefix)


if __name__ == "__main__":
    print(reference(), end="")
