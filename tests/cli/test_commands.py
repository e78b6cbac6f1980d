import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from midstream import cli
from midstream.cli import program
from midstream.errors import MidstreamError

LOOKING = ("ls", "status", "graph", "history", "watch", "state", "doctor")
CHANGING = ("plan", "apply", "shadow", "promote", "undo", "cancel", "stop")
COMMANDS = [
    *((name,) for name in (*LOOKING, *CHANGING)),
    ("demo",),
    ("version",),
    ("bench", "keycount"),
    ("bench", "stateful"),
    ("bench", "floor"),
    ("bench", "growth"),
    ("bench", "change"),
    ("bench", "migrate"),
    ("bench", "instances"),
    ("bench", "recover"),
    ("bench", "balance"),
]
BENCHES = [name for command, *names in COMMANDS for name in names if command == "bench"]


def plain(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, [*arguments], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.output


def test_help_lists_every_command() -> None:
    for command in ("bench", "demo", "version", *LOOKING, *CHANGING):
        assert command in plain("--help")
    for command in BENCHES:
        assert command in plain("bench", "--help")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_each_command_has_an_example(command: tuple[str, ...]) -> None:
    assert f"Example: midstream {' '.join(command)}" in plain(*command, "--help")


@pytest.mark.parametrize("bench", BENCHES)
def test_benches_share_their_options(bench: str) -> None:
    text = plain("bench", bench, "--help")
    for option in ("--json", "--check", "--quick", "--dir", "--driver-memory"):
        assert option in text


def test_an_error_of_ours_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise MidstreamError("UNKNOWN_STEP", "No step 'a[b]'.", hint="try 'ab'.")

    monkeypatch.setattr(program, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 1
    output = capsys.readouterr().err
    assert "[UNKNOWN_STEP] No step 'a[b]'." in output
    assert "Hint: try 'ab'." in output
    assert "Traceback" not in output


def test_a_peer_that_does_not_exist_is_named() -> None:
    command = [sys.executable, "-m", "midstream", "bench", "keycount", "--peers", "flink"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert finished.returncode == 1
    assert "[UNKNOWN_PEER] No peer 'flink'" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("keys", ["1000", "many,1000", "5,5", "0,10"])
def test_growth_wants_different_sizes(keys: str) -> None:
    result = CliRunner().invoke(cli.app, ["bench", "growth", "--keys", keys])

    assert result.exit_code == 2
    assert "1000000,50000000" in result.output


def test_demo_once_ends_by_itself_with_a_verified_result(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "midstream", "demo", "--once", "--rows-per-epoch", "2000", "--dir"]
    finished = subprocess.run([*command, str(tmp_path / "demo")], capture_output=True, text=True, timeout=280)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "✓ verified" in finished.stdout
    assert ds.dataset(tmp_path / "demo" / "totals", partitioning="hive").count_rows() > 0
