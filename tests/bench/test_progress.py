import io

import pytest
from rich.console import Console

from midstream.bench import progress as progress_module
from midstream.bench.progress import Progress


def test_without_a_terminal_phases_are_lines_and_notes_are_rare() -> None:
    output = io.StringIO()

    with Progress(Console(file=output)).shown() as progress:
        progress.phase("ours: measuring")
        for number in range(100):
            progress.note(f"epoch {number}")
        progress.phase("ours: comparing")

    assert output.getvalue().splitlines() == ["ours: measuring", "ours: comparing"]


def test_without_a_terminal_a_long_phase_shows_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PLAIN_SECONDS", 0.0)
    output = io.StringIO()

    with Progress(Console(file=output)).shown() as progress:
        progress.phase("ours: measuring")
        progress.note("[3] epochs")

    assert output.getvalue().splitlines() == ["ours: measuring", "ours: measuring: [3] epochs"]


def test_on_a_terminal_there_is_one_live_line() -> None:
    output = io.StringIO()

    with Progress(Console(file=output, force_terminal=True, width=80)).shown() as progress:
        progress.phase("ours: measuring")
        progress.note("epoch 3")

    assert "\n" not in output.getvalue().strip("\n").split("measuring")[0]
