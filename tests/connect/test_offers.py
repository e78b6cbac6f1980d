"""The server's side of an epoch, as far as files tell it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from midstream.engine.connect import offers
from midstream.engine.connect.offers import Offer
from midstream.errors import EpochError


class Rows:
    """All the server's side does with rows: it gives them a name in their session."""

    session_id = "session"

    def __init__(self) -> None:
        self.views: list[str] = []

    @property
    def sparkSession(self) -> Rows:  # noqa: N802
        return self

    catalog = sparkSession

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802
        self.views.append(name)

    def dropTempView(self, name: str) -> None:  # noqa: N802
        self.views = [view for view in self.views if view != name]


def offered(folder: Path, epoch: int = 3) -> None:
    Offer(str(folder))(cast(Any, Rows()), epoch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / ".midstream-1"
    folder.mkdir()
    (folder / "alive").write_text("0")
    return folder


def later(act: Any, *arguments: Any) -> None:
    threading.Timer(0.05, act, arguments).start()


def test_it_waits_for_the_answer(folder: Path) -> None:
    later(offers._put, folder / "answer-3", "")
    offered(folder)
    assert "midstream_1_3" in (folder / "offer-3").read_text()


def test_it_raises_what_the_answer_says(folder: Path) -> None:
    later(offers._put, folder / "answer-3", "midstream.errors.StoreError: [DISK_FULL] there is no room")
    with pytest.raises(RuntimeError, match=r"\[DISK_FULL\] there is no room"):
        offered(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EpochError, match=r"LOG_NOT_SHARED.*nowhere"):
        offered(tmp_path / "nowhere")


def test_it_ends_when_the_folder_goes(folder: Path) -> None:
    later(lambda: [file.unlink() for file in (*folder.iterdir(), folder / "alive") if file.exists()])
    with pytest.raises(EpochError, match="DRIVER_GONE"):
        offered(folder)


def test_it_ends_when_nobody_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(offers, "_PATIENCE_SECONDS", 0.2)
    with pytest.raises(EpochError, match="DRIVER_GONE"):
        offered(folder)


def test_signs_of_life_are_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(offers, "_PATIENCE_SECONDS", 0.2)

    def live() -> None:
        for number in range(1, 20):
            offers._put(folder / "alive", str(number))
            time.sleep(0.05)
        (folder / "answer-3").write_text("")

    threading.Thread(target=live).start()
    offered(folder)
