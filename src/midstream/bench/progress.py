"""What a benchmark is doing now: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

PLAIN_SECONDS = 10.0
"""Between two lines of a phase without a terminal: enough to see life in a CI log without filling it."""


class Progress:
    """Phases, each with a changing note."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._title = ""
        self._started = 0.0
        self._printed = 0.0

    def phase(self, title: str) -> None:
        """Begin the next thing."""
        self._title, self._started = title, time.monotonic()
        if self._status is not None:
            self._status.update(title)
        else:
            self._print(title)

    def note(self, text: str) -> None:
        """How the phase is going; call it as often as you like."""
        if self._status is not None:
            elapsed = time.monotonic() - self._started
            self._status.update(f"{self._title} [dim]{elapsed:.0f} s · {text}[/dim]")
        elif time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._print(f"{self._title}: {text}")

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        self._console.print(line, highlight=False, markup=False)

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        if not self._console.is_terminal:
            yield self
            return
        with self._console.status("starting") as status:
            self._status = status
            try:
                yield self
            finally:
                self._status = None
