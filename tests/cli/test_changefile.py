"""Sets of changes in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.cli.changefile import read_changes
from midstream.cli.exits import Exit
from midstream.cli.failures import CommandError
from tests.cli import answers
from tests.cli.conftest import Command
from tests.cli.fakeserver import Answer, FakeServer

GOOD = """\
changes:
  - replace: clean
    with: fixes.py:clean
    guard: {errors: "amount < 0", epochs: 3}
  - insert: eu
    after: clean
    sql: SELECT * FROM input WHERE country = 'DE'
  - insert: copy
    after: eu
    branch: true
    with: fixes.py:clean
    as: sink
  - replace: totals
    aggregate: {n: count(*)}
    key_by: [customer, country]
  - rescale: totals
    to: 8
  - tune: {rows_per_epoch: 200000}
  - drain: {host: 10.0.0.7}
  - drain: 1
  - migrate: totals
    to: 2
    instances: [0, 1]
    from: 1
  - remove: old
allow_state_loss: true
time_limit: 30
"""


def expected(code: dict[str, str]) -> list[dict[str, object]]:
    return [
        {"kind": "replace", "step": "clean", "code": code, "guard": {"errors": "amount < 0", "epochs": 3}},
        {"kind": "insert", "step": "eu", "after": "clean", "sql": "SELECT * FROM input WHERE country = 'DE'"},
        {"kind": "insert", "step": "copy", "after": "eu", "branch": True, "code": code | {"use": "sink"}},
        {"kind": "replace", "step": "totals", "aggregate": {"n": "count(*)"}, "key_by": ["customer", "country"]},
        {"kind": "rescale", "step": "totals", "to": 8},
        {"kind": "tune", "rows_per_epoch": 200_000},
        {"kind": "drain", "host": "10.0.0.7"},
        {"kind": "drain", "executor": "1"},
        {"kind": "migrate", "step": "totals", "to": "2", "instances": [0, 1], "from_executor": "1"},
        {"kind": "remove", "step": "old"},
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Not the current one: code is looked for beside the file."""
    directory = tmp_path / "somewhere"
    directory.mkdir()
    (directory / "fixes.py").write_text("def clean(df):\n    return df\n")
    return directory


@pytest.mark.parametrize("how", [("--file",), (), ("file",)], ids=["--file", "bare", "file"])
def test_a_file_becomes_one_request(
    how: tuple[str, ...], directory: Path, midstream: Command, server: FakeServer
) -> None:
    file = directory / "changes.yaml"
    file.write_text(GOOD)
    server.lay("POST", "/changes", Answer(answers.change(), 202))

    done = midstream("apply", "orders", *how, str(file), "--id", "night-1")

    assert done.code == 0, done.err
    code = {"file": "fixes.py", "text": "def clean(df):\n    return df\n", "name": "clean", "use": "function"}
    assert server.sent("POST") == [
        {"changes": expected(code), "allow_state_loss": True, "time_limit": 30, "id": "night-1"}
    ]


BAD = [
    ("", "there is no list 'changes'"),
    ("- rescale: totals", "there is no list 'changes'"),
    ("changes: []", "not a list of changes"),
    ("changes: totals", "not a list of changes"),
    ("changs: []\nchanges: [{remove: a}]", "did you mean 'changes'?"),
    ("changes: [{remove: a}]\nallow_state_loss: maybe", "'allow_state_loss' is 'maybe', not true or false"),
    ("changes: [{remove: a}]\ntime_limit: true", "'time_limit' is True, not a number of seconds"),
    ("changes: [remove]", "entry 1 is 'remove', not a change"),
    ("changes: [{remove: a}, {rescal: totals, to: 8}]", "entry 2 does not say what to do"),
    ("changes: [{rescal: totals, to: 8}]", "did you mean 'rescale'?"),
    ("changes: [{rescale: totals, too: 8}]", "entry 1 (rescale totals), 'too' is not known here"),
    ("changes: [{rescale: totals, too: 8}]", "did you mean 'to'?"),
    ("changes: [{rescale: totals}]", "entry 1 (rescale totals), 'to' is missing"),
    ("changes: [{rescale: totals, to: eight}]", "'to' is 'eight': input should be a valid integer"),
    ("changes: [{rescale: totals, to: 0}]", "'to' is 0: input should be greater than or equal to 1"),
    ("changes: [{rescale: [a, b], to: 2}]", "give the name of the step"),
    ("changes: [{remove: a, rescale: b}]", "entry 1 has remove and rescale together"),
    ("changes: [{tune: 5}]", "tune: {rows_per_epoch: 200000}"),
    ("changes: [{tune: {rows: 5}}]", "'rows' is not known here"),
    ("changes: [{replace: a}]", "does not say what the step is to do"),
    ("changes: [{replace: a, sql: S, with: 'fixes.py:clean'}]", "has 'with' and 'sql' together"),
    ("changes: [{replace: a, with: 'fixes.py:claen'}]", "did you mean 'clean'?"),
    ("changes: [{replace: a, with: 'fixes.py:clean', as: thing}]", "'as' is 'thing'"),
    ("changes: [{replace: a, sql: S, guard: {erors: x}}]", "'guard.erors' is 'x'"),
    ("changes: [{insert: a, sql: S}]", "does not say where the step goes"),
    ("changes:\n  - {remove: a\n", "line 3"),
]


@pytest.mark.parametrize(("text", "told"), BAD)
def test_a_bad_file_is_told_by_entry_and_key(text: str, told: str, directory: Path) -> None:
    file = directory / "changes.yaml"
    file.write_text(text)

    with pytest.raises(CommandError) as raised:
        read_changes(file)

    assert told in str(raised.value)
    assert str(file) in str(raised.value)
    assert raised.value.exit_code == Exit.USAGE


def test_a_missing_file_is_told(midstream: Command, server: FakeServer) -> None:
    done = midstream("apply", "orders", "nowhere.yaml")

    assert done.code == Exit.USAGE
    assert "nowhere.yaml" in done.err
