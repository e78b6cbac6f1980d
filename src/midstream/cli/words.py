"""The changes as they are said on the command line: a function for each kind, its parameters the words it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from midstream.cli.changefile import read_changes
from midstream.cli.changes import WordError, Words, kind_of, known_words, spec_of
from midstream.cli.options import pairs

BODY = "What the step does: one of --with, --sql, --aggregate"
GUARD = "Guard: what the step promises; the change is taken back when it breaks"

Step = Annotated[str, typer.Argument(metavar="STEP", help="The step.")]


class Use(StrEnum):
    FUNCTION = "function"
    BUILD = "build"
    SINK = "sink"
    SOURCE = "source"


class Open(StrEnum):
    KEEP = "keep"
    DRAIN = "drain"


class OpenRemoved(StrEnum):
    DROP = "drop"
    DRAIN = "drain"


@dataclass(frozen=True)
class Body:
    """What a step does."""

    code: Annotated[
        str | None,
        typer.Option(
            "--with", metavar="FILE.py:NAME", help="Python: a function or object of a file.", rich_help_panel=BODY
        ),
    ] = None
    use: Annotated[
        Use,
        typer.Option(
            "--as",
            metavar="WHAT",
            help="What it is: function, the step's own; build, one from streams to the step; sink; or source, one from "
            "a session to a DataFrame.",
            rich_help_panel=BODY,
        ),
    ] = Use.FUNCTION
    sql: Annotated[
        str | None, typer.Option(help="SQL; what the step reads is the table `input`.", rich_help_panel=BODY)
    ] = None
    aggregate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SQL", help="An aggregate by key; may be repeated.", rich_help_panel=BODY),
    ] = None
    key_by: Annotated[
        str | None, typer.Option(metavar="COLUMN,…", help="Columns of the key.", rich_help_panel=BODY)
    ] = None
    reads: Annotated[
        str | None,
        typer.Option(metavar="STEP,…", help="Further steps that --as build reads.", rich_help_panel=BODY),
    ] = None
    guard_errors: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="True for bad rows of the step's output.", rich_help_panel=GUARD),
    ] = None
    guard_error_rate: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="PART", help="The part of rows that may be bad. Default: none.", rich_help_panel=GUARD
        ),
    ] = None
    guard_max_epoch_ms: Annotated[
        float | None, typer.Option(min=0, metavar="MS", help="The longest an epoch may take.", rich_help_panel=GUARD)
    ] = None
    guard_epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Epochs to watch. Default: 10.", rich_help_panel=GUARD)
    ] = None

    @property
    def words(self) -> dict[str, Any]:
        guard = _said(
            errors=self.guard_errors,
            error_rate=self.guard_error_rate,
            max_epoch_ms=self.guard_max_epoch_ms,
            epochs=self.guard_epochs,
        )
        return _said(
            **{
                "with": self.code,
                "as": str(self.use) if self.use is not Use.FUNCTION else None,
                "aggregate": pairs(self.aggregate, "--aggregate", "NAME=SQL") or None,
                "guard": guard or None,
            },
            sql=self.sql,
            key_by=self.key_by,
            reads=self.reads,
        )


def replace(
    step: Step,
    body: Body,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="A column of the state that has a new name; may be repeated."),
    ] = None,
    on_open_windows: Annotated[
        Open, typer.Option(help="Windows that are open: they end as they began, or at once.")
    ] = Open.KEEP,
) -> Words:
    """Give a step another body: a function, SQL, aggregates, a sink or a source. What is not given stays.

    Example: midstream apply orders replace clean --with fixes.py:clean
    """
    drain = str(on_open_windows) if on_open_windows is Open.DRAIN else None
    renamed = pairs(rename, "--rename", "OLD=NEW") or None
    return {"replace": step, **body.words, **_said(rename=renamed, on_open_windows=drain)}


def insert(
    step: Annotated[str, typer.Argument(metavar="STEP", help="The name of the new step.")],
    body: Body,
    after: Annotated[str | None, typer.Option(metavar="STEP", help="What read this step reads the new one.")] = None,
    before: Annotated[str | None, typer.Option(metavar="STEP", help="This step reads the new one.")] = None,
    between: Annotated[
        str | None, typer.Option(metavar="STEP,STEP", help="The second reads the new one in place of the first.")
    ] = None,
    into: Annotated[str | None, typer.Option(metavar="STEP", help="The union that a new source goes into.")] = None,
    branch: Annotated[
        bool, typer.Option("--branch", metavar="", help="Only add a reader: what read the other step still does.")
    ] = False,
    parallelism: Annotated[int | None, typer.Option(min=1, metavar="N", help="Partitions of a keyed step.")] = None,
) -> Words:
    """Put a new step into the stream.

    Example: midstream apply orders insert eu --after clean --sql "SELECT * FROM input WHERE country = 'DE'"
    """
    place = _said(after=after, before=before, between=between, into=into)
    return {"insert": step, **place, **body.words, **_said(branch=branch or None, parallelism=parallelism)}


def remove(
    step: Step,
    on_open_windows: Annotated[
        OpenRemoved, typer.Option(help="Windows that are open: they go, or end at once.")
    ] = OpenRemoved.DROP,
) -> Words:
    """Take a step out; what read it reads what it read.

    Example: midstream apply orders remove eu
    """
    drain = str(on_open_windows) if on_open_windows is OpenRemoved.DRAIN else None
    return {"remove": step, **_said(on_open_windows=drain)}


def rescale(step: Step, to: Annotated[int, typer.Argument(metavar="N", min=1, help="Partitions.")]) -> Words:
    """Give a keyed step another number of partitions. No state is rewritten.

    Example: midstream apply orders rescale totals 8
    """
    return {"rescale": step, "to": to}


def rebalance(
    step: Step,
    to: Annotated[
        int | None, typer.Argument(metavar="N", min=1, help="Partitions. Default: as many as there are.")
    ] = None,
    split: Annotated[
        bool | None,
        typer.Option("--split/--no-split", help="Keep keys that are too much for one partition in parts, or whole."),
    ] = None,
) -> Words:
    """Cut the partitions of a keyed step so that each has equally much to do, by what there was to do lately.

    Example: midstream apply orders rebalance totals --split
    """
    return {"rebalance": step, **_said(to=to, split=split)}


def tune(
    trigger_seconds: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Seconds between epochs.")
    ] = None,
    rows_per_epoch: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most rows of an epoch.")] = None,
    arrow_batch_rows: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows handed to Python at a time.")
    ] = None,
    fetch_bytes_per_second: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="How fast state is brought to where instances move.")
    ] = None,
) -> Words:
    """Change settings of the run.

    Example: midstream apply orders tune --rows-per-epoch 200000
    """
    return {
        "tune": _said(
            trigger_seconds=trigger_seconds,
            rows_per_epoch=rows_per_epoch,
            arrow_batch_rows=arrow_batch_rows,
            fetch_bytes_per_second=fetch_bytes_per_second,
        )
    }


def migrate(
    step: Step,
    to: Annotated[str, typer.Option(metavar="EXECUTOR", help="The executor they go to.")],
    instances: Annotated[
        str | None, typer.Option(metavar="N,…", help="Numbers of instances. Default: all of them.")
    ] = None,
    from_executor: Annotated[
        str | None, typer.Option("--from", metavar="EXECUTOR", help="The instances that are on this executor.")
    ] = None,
) -> Words:
    """Move instances of a keyed step to another executor.

    Example: midstream apply orders migrate totals --to 2 --instances 0,1
    """
    return {"migrate": step, "to": to, **_said(**{"instances": instances, "from": from_executor})}


def drain(
    executor: Annotated[str | None, typer.Argument(metavar="EXECUTOR", help="The executor.")] = None,
    host: Annotated[str | None, typer.Option(help="All executors of a host instead.")] = None,
    decommission: Annotated[
        bool, typer.Option("--decommission", metavar="", help="Then have the cluster end them.")
    ] = False,
) -> Words:
    """Take all instances off an executor or a host.

    Example: midstream apply orders drain --host 10.0.0.7 --decommission
    """
    return {"drain": executor, **_said(host=host, decommission=decommission or None)}


def code(
    change: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="A change, or a function that makes one.")],
) -> Words:
    """Make a change that is written in Python, for instance an ms.ChangeSet.

    Example: midstream apply orders code fixes.py:spring
    """
    return {"code": change}


def file(
    changes: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The file; the word `file` may be left out.")],
) -> dict[str, Any]:
    """Make the changes of a YAML file at one boundary: all of them, or none.

    Example: midstream apply orders changes.yaml
    """
    return read_changes(changes)


KINDS: tuple[Callable[..., Words], ...] = (
    replace,
    insert,
    remove,
    rescale,
    rebalance,
    tune,
    migrate,
    drain,
    code,
)


def request_of(words: Words) -> dict[str, Any]:
    """What is asked for with these words. What is wrong with them is told as a wrong use of the command."""
    try:
        return {"changes": [spec_of(words, Path())]}
    except WordError as error:
        kind = kind_of(words)
        hint = f" Hint: {_as_options(error.hint, kind)}" if error.hint else ""
        problem = _as_options(error.problem, kind)
        if error.word is None:
            raise typer.BadParameter(f"it {problem}.{hint}", param_hint=kind) from error
        raise typer.BadParameter(f"it {problem}.{hint}", param_hint=option_name(error.word)) from error


def misused(cause: ValidationError) -> typer.BadParameter:
    """What the contract does not allow, told as a wrong use of an option."""
    first = cause.errors()[0]
    word = ".".join(str(part) for part in first["loc"])
    return typer.BadParameter(f"it is {first['input']!r}: {first['msg']}.", param_hint=option_name(word))


def option_name(word: str) -> str:
    """
    >>> option_name("guard.max_epoch_ms"), option_name("with"), option_name("step")
    ('--guard-max-epoch-ms', '--with', 'STEP')
    """
    if word in ("step", "executor", "code"):
        return {"code": "FILE.py:NAME"}.get(word, word.upper())
    return "--" + word.replace(".", "-").replace("_", "-")


def _as_options(text: str, kind: str) -> str:
    """
    >>> _as_options("give one of 'with', 'sql'; did you mean 'clean'?", "replace")
    "give one of --with, --sql; did you mean 'clean'?"
    """
    known = known_words(kind)
    return re.sub(r"'([a-z_]+)'", lambda found: option_name(found[1]) if found[1] in known else found[0], text)


def _said(**words: Any) -> dict[str, Any]:
    return {word: value for word, value in words.items() if value is not None}
