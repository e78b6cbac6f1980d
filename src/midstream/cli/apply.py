"""What is done with a change: planned, applied, tried as a shadow, promoted, undone, cancelled."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.status import Status

from midstream.cli import show
from midstream.cli.client import LONG, Remote, read
from midstream.cli.exits import Exit
from midstream.cli.failures import CommandError
from midstream.cli.follow import finish
from midstream.cli.options import WAITING, Connection, Name, Waiting
from midstream.cli.words import misused
from midstream.control.models import ChangeRequest, Modification, Shadow, UndoRequest, Verdict

HANDING_IN = "Handing in"

AllowStateLoss = Annotated[
    bool,
    typer.Option(
        "--allow-state-loss", metavar="", help="State that cannot be kept may go.", rich_help_panel=HANDING_IN
    ),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="A name for this change: handed in again, it is not made twice.",
        rich_help_panel=HANDING_IN,
    ),
]


@dataclass(frozen=True)
class Submitting:
    """How a change is handed in."""

    allow_state_loss: AllowStateLoss = False
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="For the trial run, and for the first epoch. Default: 60.",
            rich_help_panel=HANDING_IN,
        ),
    ] = None
    id: ClientId = None

    def onto(self, draft: dict[str, Any]) -> ChangeRequest:
        """The request, with what was said here before what a file says."""
        said: dict[str, Any] = {"id": self.id, "time_limit": self.time_limit}
        given = {name: value for name, value in said.items() if value is not None}
        if self.allow_state_loss:
            given["allow_state_loss"] = True
        try:
            return ChangeRequest.model_validate({**draft, **given})
        except ValidationError as cause:
            raise misused(cause) from cause


@dataclass(frozen=True)
class Shadowing:
    epochs: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Wait until so many epochs are compared, and show how they differ.",
            rich_help_panel=WAITING,
        ),
    ] = 0
    timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            envvar="MIDSTREAM_TIMEOUT",
            help="How long to wait for them.",
            rich_help_panel=WAITING,
        ),
    ] = 300


def plan(name: str, draft: dict[str, Any], submitting: Submitting, connection: Connection) -> None:
    with connection.open(name) as remote:
        _plan(remote, submitting.onto(draft), connection)


def apply(
    name: str,
    draft: dict[str, Any],
    submitting: Submitting,
    waiting: Waiting,
    connection: Connection,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            metavar="",
            help="Tell what it would do, as `midstream plan` does.",
            rich_help_panel=HANDING_IN,
        ),
    ] = False,
) -> None:
    request = submitting.onto(draft)
    with connection.open(name) as remote:
        if dry_run:
            _plan(remote, request, connection)
            return
        with _working("handing in"):
            submitted = remote.post("changes", body=request, refusal=Exit.REJECTED)
        finish(remote, submitted, waiting, connection)


def shadow(
    name: str, draft: dict[str, Any], shadowing: Shadowing, submitting: Submitting, connection: Connection
) -> None:
    request = submitting.onto(draft)
    with connection.open(name) as remote:
        with _working("starting the shadow"):
            answer = remote.post("shadows", body=request, refusal=Exit.REJECTED)
        found = read(Shadow, answer)
        end = time.monotonic() + shadowing.timeout
        with _working("comparing") as status:
            while found.epochs < shadowing.epochs and found.error is None:
                if time.monotonic() > end:
                    told = f"The shadow has compared {found.epochs} of {shadowing.epochs} epochs"
                    raise CommandError.still_under_way(
                        told, shadowing.timeout, f"midstream shadow {name} --status tells how far it is."
                    )
                time.sleep(0.3)
                answer = remote.get("shadows", found.name)
                found = read(Shadow, answer)
                status.update(f"comparing: {found.epochs} of {shadowing.epochs} epochs")
        if connection.as_json:
            show.raw(answer)
        elif shadowing.epochs:
            show.out().print(show.shadow(found))
        else:
            show.out().print(f"shadow of {found.change} runs beside '{name}'", markup=False, soft_wrap=True)
        if found.error is not None:
            raise CommandError.shadow_failed(found.error)
        show.say(f"midstream promote {name} makes it the plan, midstream shadow {name} --discard drops it")


def show_shadow(name: str, connection: Connection) -> None:
    """What the shadow has found so far."""
    with connection.open(name) as remote:
        answer = remote.get("shadows")
        if connection.as_json:
            show.raw(answer)
            return
        for found in read(list[Shadow], answer):
            show.out().print(show.shadow(found))
            return
        show.out().print(f"no shadow runs beside '{name}'", markup=False)


def discard_shadow(name: str, connection: Connection) -> None:
    with connection.open(name) as remote:
        found = _the_shadow(remote)
        remote.delete("shadows", found.name)
        show.say(f"the shadow of {found.change} is discarded")


def promote(name: Name, waiting: Waiting, connection: Connection) -> None:
    """Make the shadow of a pipeline the plan, with the state it has built.

    Example: midstream promote orders
    """
    with connection.open(name) as remote:
        found = _the_shadow(remote)
        submitted = remote.post("shadows", found.name, "promote", refusal=Exit.REJECTED)
        finish(remote, submitted, waiting, connection)


def undo(
    name: Name,
    change: Annotated[
        int | None, typer.Argument(metavar="ID", min=1, help="The change, as `midstream history` numbers it.")
    ] = None,
    allow_state_loss: AllowStateLoss = False,
    id: ClientId = None,
    *,
    waiting: Waiting,
    connection: Connection,
) -> None:
    """Take a change back, the last one unless another is named. State stays what it has become.

    Example: midstream undo orders 3
    """
    said: dict[str, Any] = {"modification": change, "id": id, "allow_state_loss": allow_state_loss or None}
    try:
        request = UndoRequest.model_validate({word: value for word, value in said.items() if value is not None})
    except ValidationError as cause:
        raise misused(cause) from cause
    with connection.open(name) as remote:
        with _working("handing in"):
            submitted = remote.post("undo", body=request, refusal=Exit.REJECTED)
        finish(remote, submitted, waiting, connection)


def cancel(
    name: Name,
    change: Annotated[int, typer.Argument(metavar="ID", min=1, help="The change.")],
    connection: Connection,
) -> None:
    """Drop a change that is not being applied yet.

    Example: midstream cancel orders 4
    """
    with connection.open(name) as remote:
        answer = remote.delete("changes", change)
        found = read(Modification, answer)
        if connection.as_json:
            show.raw(answer)
        else:
            show.out().print(show.cost(found), soft_wrap=True)
        if found.phase != "cancelled":
            raise CommandError(
                "NOT_CANCELLED",
                f"Change {change} is {found.phase.replace('_', ' ')} and can no longer be cancelled.",
                hint=f"midstream undo {name} {change} takes back what is applied.",
            )


def _plan(remote: Remote, request: ChangeRequest, connection: Connection) -> None:
    with _working("trying it on rows of the last epoch"):
        answer = remote.post("plan", body=request, refusal=Exit.REJECTED, seconds=LONG)
    if connection.as_json:
        show.raw(answer)
    else:
        show.out().print(show.verdict(read(Verdict, answer)), soft_wrap=True)


def _the_shadow(remote: Remote) -> Shadow:
    found = read(list[Shadow], remote.get("shadows"))
    if not found:
        raise CommandError.no_shadow(remote.name)
    return found[0]


def _working(what: str) -> Status:
    return show.aside().status(what)
