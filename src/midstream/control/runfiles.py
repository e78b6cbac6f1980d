"""Where runs of this machine are found: one file each, for its user alone, with the address and the tokens."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from midstream.errors import ControlError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class RunFile:
    name: str
    url: str
    pid: int
    started_at: str
    checkpoint: str
    operator_token: str = field(repr=False)
    reader_token: str = field(repr=False)
    cafile: str | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def home() -> Path:
    """`$MIDSTREAM_HOME`, or `.midstream` in the user's own directory."""
    return Path(os.environ.get("MIDSTREAM_HOME") or Path.home() / ".midstream")


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ControlError.bad_name(name)
    return name


def path_of(name: str) -> Path:
    return home() / "runs" / f"{check_name(name)}.json"


def write(run: RunFile) -> Path:
    """Put a run's file there, unless another run of that name is alive."""
    path = path_of(run.name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    other = read(path)
    if other is not None and other.is_alive and other.pid != run.pid:
        raise ControlError.name_taken(run.name, other.pid)
    # Written beside and moved there, with the mode it is to have from the first byte on.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(run), file, indent=1)
    os.replace(beside, path)
    return path


def read(path: Path) -> RunFile | None:
    """A run's file; None when it is gone or not one."""
    try:
        return RunFile(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def all_runs() -> Iterator[tuple[Path, RunFile]]:
    for path in sorted((home() / "runs").glob("*.json")):
        run = read(path)
        if run is not None:
            yield path, run


def remove(run: RunFile) -> None:
    """Take a run's file away, unless it is another's by now."""
    path = path_of(run.name)
    current = read(path)
    if current is not None and current.pid == run.pid and current.url == run.url:
        path.unlink(missing_ok=True)
