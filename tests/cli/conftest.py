"""The command in this process, its home an empty directory, and a server for it to talk to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from midstream import cli
from tests.cli.fakeserver import TOKEN, FakeServer, serving


@dataclass(frozen=True)
class Done:
    """What a command has printed, and the code it ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("MIDSTREAM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MIDSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "home" / "runs").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def midstream(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["midstream", *arguments])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return call


@pytest.fixture
def server(home: Path) -> Iterator[FakeServer]:
    """A server that is known here as the pipeline 'orders'."""
    with serving() as fake:
        write_run_file(home, "orders", fake.url)
        yield fake


def write_run_file(home: Path, name: str, url: str, pid: int | None = None, **given: Any) -> Path:
    path = home / "runs" / f"{name}.json"
    body = {
        "name": name,
        "url": url,
        "pid": os.getpid() if pid is None else pid,
        "started_at": "2026-01-02T03:04:05Z",
        "checkpoint": "file:///data/orders",
        "operator_token": TOKEN,
        "reader_token": "the-readers-token",
        "cafile": None,
    }
    path.write_text(json.dumps(body | given))
    return path
