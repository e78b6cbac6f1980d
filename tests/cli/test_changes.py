"""Each change in words becomes exactly one request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli import answers
from tests.cli.conftest import Command
from tests.cli.fakeserver import Answer, FakeServer

CODE = "def clean(df):\n    return df\n\nthreshold = 3\n"
IS_CLEAN = {"file": "fixes.py", "text": CODE, "name": "clean", "use": "function"}

PHRASES: list[tuple[str, dict[str, Any]]] = [
    ("replace clean --with fixes.py:clean", {"kind": "replace", "step": "clean", "code": IS_CLEAN}),
    (
        "replace clean --with fixes.py:clean --as build --reads raw,prices",
        {"kind": "replace", "step": "clean", "code": IS_CLEAN | {"use": "build"}, "reads": ["raw", "prices"]},
    ),
    ("replace clean --sql SELECT", {"kind": "replace", "step": "clean", "sql": "SELECT"}),
    (
        "replace totals --aggregate n=count(*) --aggregate most=max(a=b) --key-by customer,country",
        {
            "kind": "replace",
            "step": "totals",
            "aggregate": {"n": "count(*)", "most": "max(a=b)"},
            "key_by": ["customer", "country"],
        },
    ),
    (
        "replace clean --sql S --guard-errors amount<0 --guard-max-epoch-ms 500 --guard-epochs 5",
        {
            "kind": "replace",
            "step": "clean",
            "sql": "S",
            "guard": {"errors": "amount<0", "max_epoch_ms": 500.0, "epochs": 5},
        },
    ),
    (
        "replace totals --sql S --rename old=new --on-open-windows drain",
        {"kind": "replace", "step": "totals", "sql": "S", "rename": {"old": "new"}, "on_open_windows": "drain"},
    ),
    ("insert eu --after clean --sql S", {"kind": "insert", "step": "eu", "after": "clean", "sql": "S"}),
    ("insert eu --before totals --sql S", {"kind": "insert", "step": "eu", "before": "totals", "sql": "S"}),
    (
        "insert eu --between clean,totals --sql S --parallelism 4",
        {"kind": "insert", "step": "eu", "between": ["clean", "totals"], "sql": "S", "parallelism": 4},
    ),
    (
        "insert copy --after clean --branch --with fixes.py:clean --as sink",
        {"kind": "insert", "step": "copy", "after": "clean", "branch": True, "code": IS_CLEAN | {"use": "sink"}},
    ),
    (
        "insert more --into all --with fixes.py:clean --as source",
        {"kind": "insert", "step": "more", "into": "all", "code": IS_CLEAN | {"use": "source"}},
    ),
    ("remove eu", {"kind": "remove", "step": "eu"}),
    ("remove eu --on-open-windows drain", {"kind": "remove", "step": "eu", "on_open_windows": "drain"}),
    ("rescale totals 8", {"kind": "rescale", "step": "totals", "to": 8}),
    ("rebalance totals", {"kind": "rebalance", "step": "totals"}),
    ("rebalance totals 8", {"kind": "rebalance", "step": "totals", "to": 8}),
    ("rebalance totals --split", {"kind": "rebalance", "step": "totals", "split": True}),
    ("rebalance totals --no-split", {"kind": "rebalance", "step": "totals", "split": False}),
    ("tune --rows-per-epoch 200000", {"kind": "tune", "rows_per_epoch": 200_000}),
    (
        "tune --trigger-seconds 0.5 --arrow-batch-rows 1000 --fetch-bytes-per-second 1e6",
        {"kind": "tune", "trigger_seconds": 0.5, "arrow_batch_rows": 1000, "fetch_bytes_per_second": 1e6},
    ),
    ("migrate totals --to 2", {"kind": "migrate", "step": "totals", "to": "2"}),
    (
        "migrate totals --to 2 --instances 0,3 --from 1",
        {"kind": "migrate", "step": "totals", "to": "2", "instances": [0, 3], "from_executor": "1"},
    ),
    ("drain 1", {"kind": "drain", "executor": "1"}),
    ("drain --host h --decommission", {"kind": "drain", "host": "h", "decommission": True}),
    ("code fixes.py:threshold", {"kind": "code", "code": IS_CLEAN | {"name": "threshold", "use": "change"}}),
]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fixes.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("phrase", "expected"), PHRASES, ids=[phrase for phrase, _ in PHRASES])
def test_a_phrase_becomes_a_request(
    phrase: str, expected: dict[str, Any], midstream: Command, server: FakeServer
) -> None:
    server.lay("POST", "/changes", Answer(answers.change(), 202))

    done = midstream("apply", "orders", *phrase.split())

    assert done.code == 0, done.err
    assert server.sent("POST", "/changes") == [{"changes": [expected]}]


def test_plan_and_shadow_take_the_same_words(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/plan", Answer(answers.verdict()))
    server.lay("POST", "/shadows", Answer(answers.shadow(), 201))

    for verb in ("plan", "shadow"):
        done = midstream(verb, "orders", "rescale", "totals", "8")
        assert done.code == 0, done.err

    request = {"changes": [{"kind": "rescale", "step": "totals", "to": 8}]}
    assert server.sent("POST") == [request, request]


@pytest.mark.parametrize(
    "arguments",
    [
        "orders rescale totals 8 --id a1 --allow-state-loss --time-limit 5",
        "orders --id a1 --allow-state-loss --time-limit 5 rescale totals 8",
        "--id a1 orders --allow-state-loss rescale totals 8 --time-limit 5",
        "orders --id other rescale totals 8 --id a1 --time-limit 5 --allow-state-loss",
    ],
)
def test_how_to_apply_may_be_said_before_and_behind_the_change(
    arguments: str, midstream: Command, server: FakeServer
) -> None:
    server.lay("POST", "/changes", Answer(answers.change(), 202))

    done = midstream("apply", *arguments.split())

    assert done.code == 0, done.err
    assert server.sent("POST") == [
        {
            "changes": [{"kind": "rescale", "step": "totals", "to": 8}],
            "id": "a1",
            "allow_state_loss": True,
            "time_limit": 5.0,
        }
    ]


def test_dry_run_plans(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/plan", Answer(answers.verdict()))

    done = midstream("apply", "orders", "rescale", "totals", "8", "--dry-run")

    assert done.code == 0, done.err
    assert [asked.path for asked in server.asked] == ["/v1/pipelines/orders/plan"]
    assert "~ totals [aggregate]" in done.out


WRONG = [
    ("replace clean", "--with, --sql, --aggregate"),
    ("replace clean --sql S --with fixes.py:clean", "--with and --sql together"),
    ("replace clean --as sink", "--as"),
    ("replace clean --with fixes.py", "FILE.py:NAME"),
    ("replace clean --with missing.py:clean", "missing.py, which cannot be read"),
    ("replace clean --with fixes.py:claen", "did you mean 'clean'?"),
    ("replace clean --with broken.py:clean", "not Python"),
    ("replace clean --aggregate count(*)", "NAME=SQL"),
    ("replace 9clean --sql S", "STEP"),
    ("insert eu --sql S", "--after, --before, --between"),
    ("insert eu --after a --before b --sql S", "--after and --before together"),
    ("insert eu --between a --sql S", "--between"),
    ("rescale totals eight", "'N': Input should be a valid integer"),
    ("rescale totals 0", "'N'"),
    ("migrate totals", "--to"),
    ("migrate totals --to 1 --instances x", "--instances"),
    ("drain", "executor or a host"),
    ("drain 1 --host h", "executor or a host"),
    ("tune", "--rows-per-epoch"),
    ("rescale totals 8 --id %", "--id"),
    ("rescal totals 8", "rescale"),
    ("", "Say what to change"),
]


@pytest.mark.parametrize(("phrase", "told"), WRONG, ids=[phrase or "nothing" for phrase, _ in WRONG])
def test_what_is_wrong_is_told_before_anything_is_sent(
    phrase: str, told: str, midstream: Command, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("def clean(:")

    done = midstream("apply", "orders", *phrase.split())

    assert done.code == 2
    assert told in " ".join(done.err.replace("│", " ").split())
    assert not server.asked


def test_a_forgotten_name_is_noticed(midstream: Command, server: FakeServer) -> None:
    done = midstream("apply", "remove", "eu")

    assert done.code == 2
    assert "The name of the pipeline comes first" in done.err


@pytest.mark.parametrize("arguments", [("apply", "orders", "replace"), ("apply", "replace"), ("apply",)])
def test_help_needs_no_server(arguments: tuple[str, ...], midstream: Command) -> None:
    done = midstream(*arguments, "--help")

    assert done.code == 0
    assert "Example: midstream apply orders replace clean --with fixes.py:clean" in done.out
    assert "--allow-state-loss" in done.out
