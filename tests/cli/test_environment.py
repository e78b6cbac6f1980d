"""Every option has a variable, and the reference is that of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from midstream.cli import app
from midstream.cli.changefile import read_changes
from midstream.cli.exits import MEANINGS
from midstream.cli.program import PREFIX
from midstream.cli.reference import reference
from tests.cli import answers
from tests.cli.conftest import Command
from tests.cli.fakeserver import Answer, FakeServer

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def commands(command: Any = None, parent: Any = None, name: str = "midstream") -> Iterator[Any]:
    """The contexts of all commands."""
    command = command or get_command(app)
    context = typer.Context(
        command, info_name=name, parent=parent, auto_envvar_prefix=PREFIX if parent is None else None
    )
    yield context
    for child_name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(context, child_name), context, child_name)


CONTEXTS = list(commands())


def variable(option: Any, context: Any) -> str:
    return option.envvar or f"{context.auto_envvar_prefix}_{option.name.upper()}"


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.command_path)
def test_every_option_shows_its_variable(context: Any) -> None:
    for option in context.command.params:
        if option.param_type_name == "option":
            _, text = option.get_help_record(context)
            assert f"env var: {variable(option, context)}" in text


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.command_path)
def test_every_command_and_option_explains_itself(context: Any) -> None:
    command = context.command
    if not hasattr(command, "commands"):
        assert "Example: midstream " in command.help
    assert command.help


def test_variables_are_read(midstream: Command, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.lay("POST", "/changes", Answer(answers.change("proposed"), 202))
    monkeypatch.setenv("MIDSTREAM_APPLY_REPLACE_SQL", "SELECT 1")
    monkeypatch.setenv("MIDSTREAM_APPLY_REPLACE_KEY_BY", "customer")
    monkeypatch.setenv("MIDSTREAM_APPLY_ALLOW_STATE_LOSS", "1")
    monkeypatch.setenv("MIDSTREAM_WAIT", "0")
    monkeypatch.setenv("MIDSTREAM_OUTPUT", "json")

    done = midstream("apply", "orders", "replace", "clean")

    assert done.json == answers.change("proposed")
    assert server.sent("POST") == [
        {
            "changes": [{"kind": "replace", "step": "clean", "sql": "SELECT 1", "key_by": ["customer"]}],
            "allow_state_loss": True,
        }
    ]


def test_the_command_line_goes_before_variables(
    midstream: Command, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lay("POST", "/changes", Answer(answers.change("proposed"), 202))
    monkeypatch.setenv("MIDSTREAM_OUTPUT", "json")
    monkeypatch.setenv("MIDSTREAM_WAIT", "1")

    done = midstream("apply", "orders", "--detach", "-o", "table", "remove", "eu")

    assert done.out.strip() == "change 3 is proposed"


def test_the_reference_is_that_of_the_program() -> None:
    assert PAGE.read_text() == reference(), "run `make docs-cli`"


def test_the_file_of_changes_in_the_reference_is_a_good_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "changes.yaml").write_text(example)
    (tmp_path / "fixes.py").write_text("def clean(df): ...")

    assert len(read_changes(tmp_path / "changes.yaml")["changes"]) == 4


def test_the_reference_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("MIDSTREAM_OUTPUT", "json")

    assert PAGE.read_text() == reference()


def test_the_reference_names_every_command_and_variable_of_apply() -> None:
    page = PAGE.read_text()
    for context in CONTEXTS:
        path = context.command_path.split()
        if path[1:2] in (["plan"], ["shadow"]) and context.parent.parent is not None:
            continue  # as those of apply
        for option in context.command.params:
            if option.param_type_name == "option" and not _is_shared(option, context):
                assert variable(option, context) in page


def _is_shared(option: Any, context: Any) -> bool:
    """Whether the group has it, too: then it is told there."""
    parent = context.parent
    return parent is not None and parent.parent is not None and option.name in {p.name for p in parent.command.params}


def test_exit_codes_are_told_by_help_and_reference(midstream: Command) -> None:
    text = midstream("--help").out
    for code, meaning in MEANINGS.items():
        assert f"{code.value}  {meaning}" in text
        assert f"| {code.value} | {meaning} |" in PAGE.read_text()
