"""A set of changes from a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from midstream.cli.changes import KINDS, WordError, Words, kind_of, spec_of
from midstream.cli.failures import CommandError
from midstream.errors import did_you_mean

SUFFIXES = (".yaml", ".yml")

_EXAMPLE = "for instance\nchanges:\n  - rescale: totals\n    to: 8"

_SETTINGS: dict[str, tuple[tuple[type, ...], str]] = {
    "allow_state_loss": ((bool,), "true or false"),
    "time_limit": ((int, float), "a number of seconds"),
    "id": ((str,), "a text"),
}
"""What a file may say beside its changes: types, and how to say what is expected."""


def read_changes(path: Path) -> dict[str, Any]:
    """The request that a file stands for, as far as it says. Files of code are looked for beside it."""
    body = _load(path)
    if not isinstance(body, dict) or "changes" not in body:
        raise CommandError.bad_change_file(path, "there is no list 'changes'.", _EXAMPLE)
    request: dict[str, Any] = {}
    for key, value in body.items():
        if key == "changes":
            continue
        if key not in _SETTINGS:
            raise CommandError.bad_change_file(
                path, f"'{key}' is not known.", did_you_mean(str(key), ["changes", *_SETTINGS])
            )
        kinds, expected = _SETTINGS[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise CommandError.bad_change_file(path, f"'{key}' is {value!r}, not {expected}.")
        request[key] = value
    entries = body["changes"]
    if not isinstance(entries, list) or not entries:
        raise CommandError.bad_change_file(path, f"'changes' is {entries!r}, not a list of changes.", _EXAMPLE)
    request["changes"] = [_entry(path, number, entry) for number, entry in enumerate(entries, 1)]
    return request


def _entry(path: Path, number: int, entry: object) -> object:
    place = f"entry {number}"
    if not isinstance(entry, dict):
        raise CommandError.bad_change_file(
            path, f"{place} is {entry!r}, not a change.", f"begin it with one of: {', '.join(KINDS)}."
        )
    words: Words = entry
    try:
        kind = kind_of(words)
        place += f" ({kind} {words[kind]})" if isinstance(words[kind], str) else f" ({kind})"
        return spec_of(words, path.parent)
    except WordError as error:
        what = f"'{error.word}' {error.problem}" if error.word is not None else error.problem
        separator = ", " if error.word is not None else " "
        raise CommandError.bad_change_file(path, f"{place}{separator}{what}.", error.hint) from error


def _load(path: Path) -> object:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as cause:
        raise CommandError.unreadable(path, cause) from cause
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as cause:
        mark = getattr(cause, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        problem = getattr(cause, "problem", None) or cause
        raise CommandError.bad_change_file(path, f"{where}{problem}.") from cause
