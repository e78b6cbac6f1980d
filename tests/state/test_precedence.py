"""What works in the background waits for the stream, but not for ever; the stream waits for nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from midstream.state.precedence import LONGEST_SECONDS, Courtesy, give_way, meeting_point, working
from midstream.state.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return open_store(f"s3://bucket/{uuid4().hex}", {})


@pytest.fixture
def point(store: Store) -> Path:
    found = meeting_point(store)
    assert found is not None
    return found


def waited(point: Path, seconds: float) -> float:
    began = time.monotonic()
    give_way(point, seconds)
    return time.monotonic() - began


def test_the_background_waits_while_anybody_works(point: Path) -> None:
    assert waited(point, 5) < 1, "nobody works"
    with working(point), working(point):
        assert waited(point, 0.2) >= 0.2, "and not longer than it is told to"
    assert waited(point, 5) < 1


def test_the_background_goes_on_when_the_work_is_done(point: Path) -> None:
    ends, begun = threading.Event(), threading.Event()

    def task() -> None:
        with working(point):
            begun.set()
            ends.wait(10)

    thread = threading.Thread(target=task)
    thread.start()
    begun.wait(10)
    threading.Timer(0.3, ends.set).start()
    assert 0.2 < waited(point, 10) < 5
    thread.join()


def test_one_that_dies_holds_nobody_up(point: Path) -> None:
    dies = (
        "import os, pathlib\nfrom midstream.state.precedence import working\n"
        f"with working(pathlib.Path({str(point)!r})):\n    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", dies]).returncode == -9
    assert waited(point, 5) < 1


def test_all_processes_of_a_machine_meet_at_one_file(store: Store, point: Path) -> None:
    again = open_store(store.url, {})
    assert meeting_point(again) == point
    points = {meeting_point(open_store(f"s3://bucket/{number}", {})) for number in range(2000)}
    assert 200 < len(points) <= 256, "few enough to be left behind"


def test_a_directory_needs_none(tmp_path: Path) -> None:
    assert meeting_point(open_store(str(tmp_path / "chk"))) is None
    with working(None):
        Courtesy(open_store(str(tmp_path / "chk")))()


def test_a_folder_that_cannot_be_had_is_no_reason_to_fail(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    with working(file / "point"):
        give_way(file / "point", 0.1)
    monkeypatch.setattr("tempfile.tempdir", str(file))
    assert meeting_point(store) is None


def test_a_folder_of_somebody_else_is_not_used(store: Store, point: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = point.parent
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))
    assert meeting_point(store) is None


class Clock:
    """Time that goes by only when somebody waits or works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_beside_a_stream_that_always_works_half_of_the_time_is_waited(store: Store, point: Path) -> None:
    clock = Clock()
    courtesy = Courtesy(store, clock, clock.sleep)
    pieces, piece_seconds = 100, 0.1
    with working(point):
        for _ in range(pieces):
            courtesy()
            clock.sleep(piece_seconds)
    work = pieces * piece_seconds
    assert clock.now - work == pytest.approx(work, rel=0.1)


def test_one_wait_is_never_long(store: Store, point: Path) -> None:
    clock = Clock()
    courtesy = Courtesy(store, clock, clock.sleep)
    clock.sleep(1000)  # it has worked for long beside nobody
    before = clock.now
    with working(point):
        courtesy()
    assert clock.now - before == pytest.approx(LONGEST_SECONDS, abs=0.05)


def test_small_work_hardly_waits_and_not_at_all_when_nobody_works(store: Store, point: Path) -> None:
    clock = Clock()
    courtesy = Courtesy(store, clock, clock.sleep)
    with working(point):
        courtesy()
    assert 0 < clock.now < 0.1
    before = clock.now
    courtesy()
    assert clock.now == before, "nobody works"
