"""Background copying waits for tasks of the stream, but not for ever; a task waits for nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from midstream.state.precedence import give_way, working


def waited(directory: Path, seconds: float) -> float:
    began = time.monotonic()
    give_way(directory, seconds)
    return time.monotonic() - began


def test_copying_waits_while_any_task_works(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert waited(cache, 5) < 1, "nobody works"
    with working(cache), working(cache):
        assert waited(cache, 0.2) >= 0.2, "and not longer than it is told to"
    assert waited(cache, 5) < 1


def test_copying_goes_on_when_the_task_is_done(tmp_path: Path) -> None:
    ends, begun = threading.Event(), threading.Event()

    def task() -> None:
        with working(tmp_path):
            begun.set()
            ends.wait(10)

    thread = threading.Thread(target=task)
    thread.start()
    begun.wait(10)
    threading.Timer(0.3, ends.set).start()
    assert 0.2 < waited(tmp_path, 10) < 5
    thread.join()


def test_a_task_that_dies_holds_nobody_up(tmp_path: Path) -> None:
    dies = (
        "import os, pathlib\nfrom midstream.state.precedence import working\n"
        f"with working(pathlib.Path({str(tmp_path)!r})):\n    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", dies]).returncode == -9
    assert waited(tmp_path, 5) < 1


def test_a_directory_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with working(file / "cache"):
        give_way(file / "cache", 0.1)
