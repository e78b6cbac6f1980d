"""Epochs of a query that runs on a Spark Connect server, run by this process.

```
server: foreachBatch ▶ Offer: rows as a view ▶ offer-N ──▶ this process: the view by its session ▶ on_batch(rows, N)
                       waits for answer-N ◀────────────────────────────────── answer-N: empty, or why it failed
```
Offers and answers are files beside Spark's log of offsets, which both sides have to see anyhow.

| who dies | what happens |
| --- | --- |
| this process | `alive` changes no more: after a minute the server's side fails, and the query ends |
| … and another has started before that | it takes the folder away: the server's side fails at once |
| the server | the query is not active any more: answering ends |
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.engine.connect.session import id_of, leave, reached
from midstream.errors import EpochError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_FOLDER = ".midstream-"
_LOOK_SECONDS = 0.002
_ALIVE_SECONDS = 1
_PATIENCE_SECONDS = 60.0
_END_SECONDS = 10.0
"""For so long a run that ends waits for either thread: a server that is gone may not answer."""
_VIEWS = 16
"""Epochs whose rows can still be read afterwards: changes are tried on the last one's while others go on."""

cancel_epoch: ContextVar[Callable[[], object] | None] = ContextVar("cancel_epoch", default=None)
"""In the thread that runs epochs: how to cancel what the server is doing for the one under way."""


@dataclass(frozen=True)
class Offer:
    """What `foreachBatch` calls, in a process of the server: offers the rows, and waits until somebody has run them."""

    folder: str

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        folder = Path(self.folder)
        if not folder.is_dir():
            raise EpochError.not_shared(self.folder)
        session, view = rows.sparkSession, _view(folder, epoch)
        rows.createOrReplaceTempView(view)
        session.catalog.dropTempView(_view(folder, epoch - _VIEWS))
        _put(folder / f"offer-{epoch}", json.dumps({"session": id_of(session), "view": view}))
        error = self._answer(folder / f"answer-{epoch}")
        if error:
            raise RuntimeError(error)

    def _answer(self, file: Path) -> str:
        alive, seen, last = file.with_name("alive"), "", time.monotonic()
        while True:
            try:
                return file.read_text()
            except FileNotFoundError:
                time.sleep(_LOOK_SECONDS)
            if time.monotonic() - last > _ALIVE_SECONDS:
                found = _text(alive)
                if found is None:
                    raise EpochError.driver_gone("its folder is gone")
                if found != seen:
                    seen, last = found, time.monotonic()
                elif time.monotonic() - last > _PATIENCE_SECONDS:
                    raise EpochError.driver_gone(f"it has given no sign for {_PATIENCE_SECONDS:.0f} s")


@dataclass
class Answering:
    """This process's side: a thread that runs what is offered, as long as the query does."""

    spark: SparkSession
    on_batch: Callable[[DataFrame, int], None]
    folder: Path
    _sessions: dict[str, SparkSession] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def beside(cls, log: Path, spark: SparkSession, on_batch: Callable[[DataFrame, int], None]) -> Answering:
        """For a query whose log is there. Nobody else is to run it any more."""
        for old in log.glob(f"{_FOLDER}*"):
            shutil.rmtree(old, ignore_errors=True)
        folder = log / f"{_FOLDER}{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        _put(folder / "alive", "0")
        return cls(spark, on_batch, folder)

    @property
    def offer(self) -> Offer:
        return Offer(str(self.folder.absolute()))

    def begin(self, query: StreamingQuery) -> None:
        """Answer until the query has ended."""
        ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(ended,), name="midstream-epochs", daemon=True),
            threading.Thread(target=self._stay_alive, args=(query, ended), name="midstream-alive", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait until nothing more is asked of the server, and close what was opened to it, once the query has ended.

        A process that ends while a thread waits for the server may never end: that thread stops where it is, maybe
        with the lock of a connection that Python closes when it deletes the session."""
        for thread in self._threads:
            thread.join(_END_SECONDS)
        for session in self._sessions.values():
            if session is not self.spark:
                leave(session)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self, ended: threading.Event) -> None:
        while not ended.is_set():
            for file in sorted(self.folder.glob("offer-*")):
                self._run(file)
            time.sleep(_LOOK_SECONDS)
        self.close()

    def _stay_alive(self, query: StreamingQuery, ended: threading.Event) -> None:
        """Give signs of life, also while an epoch runs, until the query has ended."""
        number = 0
        with suppress(Exception):  # whoever waits for the query is told why it failed
            while not query.awaitTermination(_ALIVE_SECONDS):
                number += 1
                _put(self.folder / "alive", str(number))
        ended.set()

    def _run(self, file: Path) -> None:
        epoch, told = int(file.name.partition("-")[2]), json.loads(file.read_text())
        file.unlink()
        answer = ""
        try:
            session = self._session(told["session"])
            tag = f"{self.folder.name.strip('.')}-{epoch}"
            session.addTag(tag)
            within = cancel_epoch.set(lambda: session.interruptTag(tag))
            try:
                self.on_batch(session.table(told["view"]), epoch)
            finally:
                cancel_epoch.reset(within)
                session.removeTag(tag)
        except Exception as error:
            answer = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
        _put(file.with_name(f"answer-{epoch}"), answer)

    def _session(self, id_: str) -> SparkSession:
        """That of the query, in which the rows are known and the settings of epochs hold."""
        if id_ not in self._sessions:
            self._sessions[id_] = reached(self.spark, id_)
        return self._sessions[id_]


def _view(folder: Path, epoch: int) -> str:
    return f"{folder.name.strip('.').replace('-', '_')}_{epoch}"


def _put(file: Path, text: str) -> None:
    """All of it or nothing, for somebody who looks at any moment."""
    made = file.with_name(f".{file.name}.new")
    try:
        made.write_text(text)
        os.replace(made, file)
    except FileNotFoundError:
        return  # the folder is gone: nobody asks any more


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None
