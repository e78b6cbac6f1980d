"""`midstream demo`: the story from its start to its table."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live

from midstream.bench.session import spark_session
from midstream.control.runfiles import all_runs
from midstream.control.server import ControlServer, ServeOptions
from midstream.demo.auction import pipeline
from midstream.demo.display import Display, compared, costs, told_line
from midstream.demo.story import Scene, Told, play, scenes
from midstream.demo.verify import comparisons, stretches
from midstream.engine.run import Run
from midstream.errors import MidstreamError
from midstream.signals import asked_to_end

TRIGGER = {"processingTime": "500 milliseconds"}
WARM_UP_EPOCHS = 8
BETWEEN_EPOCHS = 4
"""Epochs a change is left alone for before the next."""
PLAIN_SECONDS = 2.0
"""Between two lines where there is no terminal for the live display."""


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the last change and its verification.")] = False,
    rows_per_epoch: Annotated[int, typer.Option(min=1, help="Bids generated for an epoch.")] = 50_000,
    dir: Annotated[
        Path | None, typer.Option(help="Output, checkpoint and log; empty. Default: a new temporary directory.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0: any free one.")] = 0,
) -> None:
    """An auction under load that is changed while it runs: what each change cost, and whether every bid counted once.

    Then it goes on, with a page to change it yourself, until Ctrl-C.

    Example: midstream demo --once --rows-per-epoch 200000
    """
    console = Console()
    directory = (dir or Path(tempfile.mkdtemp(prefix="midstream-demo-"))).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise MidstreamError("NOT_EMPTY", f"{directory} has files in it.", hint="give --dir a new or empty directory.")
    console.print(f"Parquet output in {directory}", highlight=False, soft_wrap=True)
    with spark_session(directory, driver_memory="2g") as spark, asked_to_end() as asked:
        flow = pipeline(rows_per_epoch, directory)
        run = flow.start(spark, checkpoint=str(directory / "checkpoint"), trigger=TRIGGER)
        server = ControlServer(run, _free_name("demo"), ServeOptions(port=port))
        console.print(f"the page: [bold]{server.page_with_token()}[/bold]", highlight=False, soft_wrap=True)
        try:
            stage = Stage(run, asked, console)
            told = stage.perform(directory)
            verified = _verified(spark, run, told, directory, console) if told else False
            if not once and not asked.is_set():
                console.print("It goes on: change it on the page, or with `midstream apply`. Ctrl-C ends it.")
                stage.show_until(lambda: False)
        finally:
            run.stop()
            server.stop()
    if run.exception is not None:
        raise run.exception
    if not verified:
        raise typer.Exit(1)


class Stage:
    """Plays the story beside the display."""

    def __init__(self, run: Run, asked: threading.Event, console: Console) -> None:
        self._run = run
        self._asked = asked
        self._console = console
        self._display = Display()

    def perform(self, directory: Path) -> list[Told]:
        """All scenes, each a few epochs after the one before; what is told of them, as far as it came."""
        told: list[Told] = []
        self._epochs(WARM_UP_EPOCHS)
        for scene in scenes(directory):
            if self._is_over():
                break
            self._display.doing = scene.words
            told.append(self._played(scene))
            self._display.done.append(told[-1])
            if not self._console.is_terminal:
                self._console.print(f"  {told_line(told[-1])}", highlight=False, soft_wrap=True)
            self._display.doing = "letting it run"
            self._epochs(BETWEEN_EPOCHS)
        return told

    def _played(self, scene: Scene) -> Told:
        """Play a scene in a thread of its own: the display goes on meanwhile."""
        with ThreadPoolExecutor(1, "demo-scene") as player:
            playing = player.submit(play, scene, self._run)
            self.show_until(playing.done)
            return playing.result()

    def _epochs(self, count: int) -> None:
        wanted = self._run.last_epoch + count
        self.show_until(lambda: self._run.last_epoch >= wanted)

    def _is_over(self) -> bool:
        return self._asked.is_set() or self._run.status not in ("starting", "running")

    def show_until(self, done: Callable[[], bool]) -> None:
        """Show the run until something is so, it ends, or it is told to."""
        live = Live(self._display.render(), console=self._console, refresh_per_second=8, transient=True)
        if self._console.is_terminal:
            live.start()
        printed, shown = time.monotonic(), -1
        try:
            while not done() and not self._is_over():
                self._asked.wait(0.1)
                self._display.take(self._run.epochs())
                if self._console.is_terminal:
                    live.update(self._display.render())
                elif (
                    self._run.last_epoch > shown
                    and self._display.epochs
                    and time.monotonic() - printed >= PLAIN_SECONDS
                ):
                    printed, shown = time.monotonic(), self._run.last_epoch
                    self._console.print(self._display.line(), highlight=False, soft_wrap=True)
        finally:
            live.stop()


def _verified(spark: SparkSession, run: Run, told: list[Told], directory: Path, console: Console) -> bool:
    last = run.last_epoch
    firsts = [one.modification.epoch for one in told if one.modification.epoch is not None]
    found = stretches(directory, firsts, last)
    compared_with_batch = comparisons(spark, run, told, directory, last)
    console.print(costs(told, found))
    console.print(compared(compared_with_batch))
    right = all(c.right for c in compared_with_batch) and not any(s.lost or s.duplicated for s in found)
    if right and all(one.as_expected for one in told):
        console.print("✓ verified: every bid counted once, with the rules of its time", style="bold green")
        return True
    console.print("✗ NOT verified: see the tables above", style="bold red")
    return False


def _free_name(wanted: str) -> str:
    """A name no run of this machine has."""
    taken = {run.name for _, run in all_runs() if run.is_alive}
    return next(name for name in (wanted, *(f"{wanted}-{n}" for n in range(2, 1000))) if name not in taken)
