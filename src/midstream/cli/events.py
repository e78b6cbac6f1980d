"""What a pipeline tells as it happens: server-sent events, with a new connection when one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from midstream.cli.client import Remote
from midstream.cli.exits import Exit
from midstream.cli.failures import CommandError

SILENCE = 45.0
"""Seconds without a sign of life after which a connection is dead: a comment comes every 15."""

PATIENCE = 20.0
"""Seconds to go on trying a server that was there. A driver that starts again takes about that long."""


@dataclass(frozen=True)
class Event:
    kind: str
    data: str


def events(remote: Remote, patience: float = PATIENCE, on_loss: Callable[[], None] | None = None) -> Iterator[Event]:
    """Events of a pipeline. `hello` is the first of each connection; a lost one is made again for a while."""
    found = False
    lost: float | None = None
    pause = 0.2
    while True:
        try:
            with remote.client.stream(remote.path("events"), seconds=SILENCE) as answer:
                for event in parse(answer.iter_lines()):
                    found, lost, pause = True, None, 0.2
                    yield event
                error = CommandError.unreachable(remote.client.address.url, "it has ended the connection")
        except CommandError as failed:
            if failed.exit_code != Exit.UNREACHABLE or failed.error_class == "UNKNOWN_PIPELINE":
                raise
            error = failed
        if not found:
            raise error
        if on_loss is not None:
            on_loss()
        lost = time.monotonic() if lost is None else lost
        if time.monotonic() - lost > patience:
            raise error
        time.sleep(pause)
        pause = min(pause * 2, 2.0)


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """
    >>> list(parse(["event: epoch", 'data: {"epoch": 1}', "", ": still here", "", "data: x", "data: y", ""]))
    [Event(kind='epoch', data='{"epoch": 1}'), Event(kind='message', data='x\\ny')]
    """
    kind, data = "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield Event(kind, "\n".join(data))
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
