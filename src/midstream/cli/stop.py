"""`midstream stop`: end a pipeline after the epoch under way."""

from __future__ import annotations

import time

from midstream.cli import show
from midstream.cli.client import Remote, read
from midstream.cli.exits import Exit
from midstream.cli.failures import CommandError
from midstream.cli.options import Connection, Name, Waiting
from midstream.cli.where import live_and_stale
from midstream.control.models import Pipeline


def stop(name: Name, waiting: Waiting, connection: Connection) -> None:
    """Stop a pipeline gracefully: the epoch under way is committed first.

    Example: midstream stop orders
    """
    with connection.open(name) as remote:
        answer = remote.post("stop")
        if waiting.wait:
            with show.aside().status(f"'{name}' is ending its epoch"):
                _wait(remote, waiting.timeout)
    if connection.as_json:
        show.raw(answer)
    else:
        show.out().print(f"'{name}' {'has stopped' if waiting.wait else 'is stopping'}", markup=False)


def _wait(remote: Remote, timeout: float) -> None:
    """Until it is said to be over, and its run file is gone, too: then nothing of it is under way any more."""
    end = time.monotonic() + timeout
    over = False
    while not over or _is_listed(remote):
        if time.monotonic() >= end:
            raise CommandError.still_under_way(
                f"'{remote.name}' has not stopped", timeout, "it stops by itself when the epoch under way is committed."
            )
        time.sleep(0.2)
        over = over or _is_over(remote)


def _is_over(remote: Remote) -> bool:
    try:
        return read(Pipeline, remote.get()).status in ("stopped", "failed")
    except CommandError as error:
        if error.exit_code != Exit.UNREACHABLE:
            raise
        return True


def _is_listed(remote: Remote) -> bool:
    url = remote.client.address.url.rstrip("/")
    return any(run.name == remote.name and run.url.rstrip("/") == url for run in live_and_stale()[0])
