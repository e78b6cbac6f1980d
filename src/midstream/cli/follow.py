"""A change followed to its end: progress meanwhile, then what it cost and the exit code it stands for."""

from __future__ import annotations

import time

import httpx
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from midstream.changes.verdict import in_bytes
from midstream.cli import show
from midstream.cli.client import Remote, read
from midstream.cli.exits import Exit
from midstream.cli.failures import CommandError
from midstream.cli.options import Connection, Waiting
from midstream.control.models import Modification

PHASES = ("proposed", "validated", "preparing", "waiting", "applying", "applied")

_DOING = {
    "proposed": "checking",
    "validated": "checked",
    "preparing": "preparing",
    "waiting": "waiting for the end of an epoch",
    "applying": "first epoch with it",
}

_EXITS = {
    "rejected": Exit.REJECTED,
    "cancelled": Exit.REJECTED,
    "rolled_back": Exit.ROLLED_BACK,
    "undone": Exit.ROLLED_BACK,
}

_LONGEST_PAUSE = 0.5


def finish(remote: Remote, submitted: httpx.Response, waiting: Waiting, connection: Connection) -> None:
    """Stay with a change that was handed in, unless told not to; tell what became of it, and raise if it is not in."""
    answer = submitted
    if waiting.wait:
        answer = _follow(remote, submitted, waiting.timeout)
    change = read(Modification, answer)
    if connection.as_json:
        show.raw(answer)
    elif change.under_way:
        show.out().print(f"change {change.id} is {change.phase}", highlight=False)
        show.say(f"midstream history {remote.name} tells how far it is")
    elif change.phase == "applied":
        show.out().print(show.cost(change), soft_wrap=True)
    if change.phase in _EXITS:
        raise CommandError.not_applied(change.id, change.phase, change.reason, _EXITS[change.phase])


def _follow(remote: Remote, submitted: httpx.Response, timeout: float) -> httpx.Response:
    answer, change = submitted, read(Modification, submitted)
    end = time.monotonic() + timeout
    pause = 0.1
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=show.aside(), transient=True) as progress:
        task = progress.add_task(_doing(change), total=len(PHASES) - 1)
        try:
            while change.under_way:
                if time.monotonic() >= end:
                    raise CommandError.still_under_way(
                        f"Change {change.id} is still {change.phase}", timeout, _meanwhile(remote, change)
                    )
                time.sleep(min(pause, max(end - time.monotonic(), 0.0)))
                pause = min(pause * 1.3, _LONGEST_PAUSE)
                answer = remote.get("changes", change.id)
                change = read(Modification, answer)
                step = PHASES.index(change.phase) if change.phase in PHASES else None
                progress.update(task, completed=step, description=_doing(change))
        except KeyboardInterrupt:
            progress.stop()
            show.say(f"change {change.id} goes on by itself; {_meanwhile(remote, change)}")
            raise
    return answer


def _doing(change: Modification) -> str:
    told = f"change {change.id}: {_DOING.get(change.phase, change.phase)}"
    if change.moved is not None and change.moved.of_bytes:
        told += f", {in_bytes(change.moved.bytes)} of {in_bytes(change.moved.of_bytes)} moved"
    return told


def _meanwhile(remote: Remote, change: Modification) -> str:
    return (
        f"`midstream history {remote.name}` tells how far it is,"
        f" `midstream cancel {remote.name} {change.id}` drops it until it is being applied."
    )
