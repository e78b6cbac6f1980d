"""Finding pipelines: run files, stale ones, and what is said on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from midstream.cli.exits import Exit
from tests.cli import answers
from tests.cli.conftest import Command, write_run_file
from tests.cli.fakeserver import TOKEN, Answer, FakeServer


@pytest.fixture
def dead() -> int:
    """The number of a process that was and is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_ls_tells_what_runs(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "", Answer(answers.pipeline()))

    done = midstream("ls")

    assert done.code == 0
    assert done.out.split("\n")[0].split() == ["name", "status", "epoch", "plan", "rows/s", "p50", "ms", "url"]
    assert done.out.split("\n")[1].split() == ["orders", "running", "41", "2", "12,346", "210", server.url]


def test_ls_as_json_is_what_servers_say(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "", Answer(answers.pipeline()))

    assert midstream("ls", "-o", "json").json == [answers.pipeline()]


def test_ls_of_a_server(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "/v1/pipelines", Answer([answers.pipeline()]))
    server.lay("GET", "", Answer(answers.pipeline()))

    assert midstream("ls", "--server", server.url, "-o", "json").json == [answers.pipeline()]


def test_ls_of_nothing_says_how_to_start(midstream: Command) -> None:
    done = midstream("ls")

    assert (done.code, done.out) == (0, "")
    assert "midstream run" in done.err


def test_a_stale_run_file_is_told_and_removed(midstream: Command, home: Path, dead: int) -> None:
    path = write_run_file(home, "gone", "http://127.0.0.1:9", pid=dead)

    done = midstream("ls")

    assert done.code == 0
    assert f"'gone' (process {dead}) is gone" in done.err
    assert not path.exists()


def test_a_command_for_a_stale_run_says_so(midstream: Command, home: Path, dead: int) -> None:
    path = write_run_file(home, "gone", "http://127.0.0.1:9", pid=dead)

    done = midstream("status", "gone")

    assert done.code == Exit.UNREACHABLE
    assert f"[PIPELINE_GONE] The process {dead}" in done.err
    assert not path.exists()


def test_a_process_that_does_not_answer_is_listed_as_such(midstream: Command, home: Path) -> None:
    write_run_file(home, "deaf", "http://127.0.0.1:9")

    done = midstream("ls")

    assert "unreachable" in done.out
    assert "No connection to http://127.0.0.1:9" in done.err


def test_files_that_are_no_run_files_are_left_alone(midstream: Command, home: Path) -> None:
    for name, text in (("half", '{"name": "half"'), ("list", "[]"), ("other", '{"a": 1}')):
        (home / "runs" / f"{name}.json").write_text(text)

    assert midstream("ls").code == 0
    assert len(list((home / "runs").iterdir())) == 3


def test_an_unknown_name_is_told_with_the_nearest(midstream: Command, server: FakeServer) -> None:
    done = midstream("status", "order")

    assert done.code == Exit.UNREACHABLE
    assert "[UNKNOWN_PIPELINE]" in done.err
    assert "did you mean 'orders'?" in done.err


def test_no_pipeline_at_all_is_told_with_what_to_do(midstream: Command) -> None:
    done = midstream("status", "orders")

    assert done.code == Exit.UNREACHABLE
    assert "--server" in done.err


@pytest.mark.parametrize("how", ["option", "file", "variable", "variable of the file"])
def test_server_and_token_can_be_given(
    how: str, midstream: Command, server: FakeServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "runs" / "orders.json").unlink()
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    server.lay("GET", "", Answer(answers.pipeline()))
    said = ["--server", server.url.removeprefix("http://")]
    if how == "option":
        said += ["--token", TOKEN]
    elif how == "file":
        said += ["--token-file", str(file)]
    elif how == "variable":
        said = []
        monkeypatch.setenv("MIDSTREAM_SERVER", server.url)
        monkeypatch.setenv("MIDSTREAM_TOKEN", TOKEN)
    else:
        monkeypatch.setenv("MIDSTREAM_TOKEN_FILE", str(file))

    done = midstream("status", "orders", *said)

    assert done.code == 0, done.err


def test_the_token_of_a_server_of_this_machine_is_found(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "", Answer(answers.pipeline()))

    assert midstream("status", "orders", "--server", server.url).code == 0


def test_a_server_without_a_token_is_not_asked(midstream: Command) -> None:
    done = midstream("status", "orders", "--server", "http://127.0.0.1:9")

    assert done.code == Exit.NOT_ALLOWED
    assert "[NO_TOKEN]" in done.err


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "http://host:99999"])
def test_what_is_no_address_is_a_wrong_use(url: str, midstream: Command) -> None:
    done = midstream("status", "orders", "--server", url, "--token", "t")

    assert done.code == Exit.USAGE
    assert "[BAD_ADDRESS]" in done.err
