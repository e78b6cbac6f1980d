"""A change in words, from the command line or an entry of a file, made what the server takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from midstream.control.models import (
    BodySpec,
    Code,
    CodeSpec,
    DrainSpec,
    InsertSpec,
    MigrateSpec,
    RebalanceSpec,
    RemoveSpec,
    ReplaceSpec,
    RescaleSpec,
    TuneSpec,
)
from midstream.errors import did_you_mean

Words = Mapping[str, Any]
"""A change as it is said: `{"insert": "eu", "after": "clean", "sql": "SELECT …"}`."""

KINDS: dict[str, type[BaseModel]] = {
    "replace": ReplaceSpec,
    "insert": InsertSpec,
    "remove": RemoveSpec,
    "rescale": RescaleSpec,
    "rebalance": RebalanceSpec,
    "tune": TuneSpec,
    "migrate": MigrateSpec,
    "drain": DrainSpec,
    "code": CodeSpec,
}

_SUBJECTS = {"drain": "executor", "code": "code"}
"""What the word behind the kind is, where it is not the step."""

_SAID = {"from": "from_executor"}
"""Words that are other ones in the contract."""

_LISTS = ("key_by", "reads", "between", "instances")
"""Words that may be a single text, with commas."""

_EXECUTORS = {"migrate": ("to", "from"), "drain": ("executor", "host")}


class WordError(Exception):
    """A word of a change that is wrong: which, in what way, and what would be right."""

    def __init__(self, word: str | None, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.word = word
        self.problem = problem
        self.hint = hint


def kind_of(words: Words) -> str:
    """Which kind of change is said. Raises unless it is one."""
    kinds = [word for word in words if word in KINDS]
    if len(kinds) == 1:
        return kinds[0]
    known = ", ".join(KINDS)
    if kinds:
        raise WordError(None, f"has {' and '.join(kinds)} together", "make each change an entry of its own.")
    first = next(iter(words), None)
    hint = did_you_mean(str(first), list(KINDS)) if first is not None else f"one of: {known}."
    raise WordError(None, "does not say what to do", hint)


def spec_of(words: Words, directory: Path) -> BaseModel:
    """The change as the server takes it. Files of code are looked for in a directory."""
    kind = kind_of(words)
    model = KINDS[kind]
    given = {**_subject(kind, words[kind]), **{word: value for word, value in words.items() if word != kind}}
    known = known_words(kind)
    for word in given:
        if word not in known:
            raise WordError(str(word), "is not known here", did_you_mean(str(word), known))
    fields: dict[str, Any] = {"kind": kind}
    for word, value in given.items():
        if word not in ("with", "as"):
            fields[_SAID.get(word, word)] = _plain(kind, word, value)
    if kind == "code":
        fields["code"] = read_code(given["code"], "change", directory, "code")
    elif "with" in given:
        fields["code"] = read_code(given["with"], given.get("as", "function"), directory)
    elif "as" in given:
        raise WordError("as", "says what code is, and there is none", "give it: 'with'.")
    _check(model, fields)
    try:
        return model.model_validate(fields)
    except ValidationError as cause:
        raise _told(cause) from cause


def known_words(kind: str) -> list[str]:
    """The words a kind of change takes beside its first."""
    words = [field for field in KINDS[kind].model_fields if field != "kind"]
    if issubclass(KINDS[kind], BodySpec):
        words = ["with", "as", *(word for word in words if word != "code")]
    contract = {field: word for word, field in _SAID.items()}
    return [contract.get(word, word) for word in words]


def read_code(text: object, use: object, directory: Path, word: str = "with") -> Code:
    """The file and name that `fixes.py:clean` stands for."""
    if not isinstance(text, str) or ":" not in text:
        raise WordError(word, f"is {text!r}", "write FILE.py:NAME, for instance fixes.py:clean.")
    file, _, name = text.rpartition(":")
    path = directory / Path(file).expanduser()
    try:
        source = path.read_text()
        known = set(_names(ast.parse(source, filename=file)))
    except (OSError, UnicodeDecodeError) as cause:
        raise WordError(word, f"names {file}, which cannot be read: {_reason(cause)}") from cause
    except (SyntaxError, ValueError) as cause:
        raise WordError(word, f"names {file}, which is not Python: {cause}") from cause
    if name not in known and "*" not in known:
        raise WordError(word, f"names '{name}', which {file} does not have", did_you_mean(name, sorted(known)))
    try:
        return Code.model_validate({"file": file[-256:], "text": source, "name": name, "use": use})
    except ValidationError as cause:
        raise _told(cause, {"use": "as", "name": word, "text": word}) from cause


def _subject(kind: str, value: object) -> dict[str, Any]:
    """What stands behind the kind: the step, or settings."""
    if isinstance(value, Mapping) and kind in ("tune", "drain"):
        return {str(word): setting for word, setting in value.items()}
    if kind == "tune":
        raise WordError("tune", f"is {value!r}", "give settings, for instance tune: {rows_per_epoch: 200000}.")
    if value is None and kind == "drain":
        return {}
    if isinstance(value, Mapping | list):
        raise WordError(kind, f"is {value!r}", "give the name of the step.")
    return {_SUBJECTS.get(kind, "step"): str(value)}


def _check(model: type[BaseModel], fields: Mapping[str, Any]) -> None:
    """What no single word shows: that one way to say something was used, and only one."""
    if issubclass(model, BodySpec):
        ways = [way for way in ("code", "sql", "aggregate") if fields.get(way) is not None]
        if len(ways) != 1:
            told = " and ".join("'with'" if way == "code" else f"'{way}'" for way in ways)
            problem = f"has {told} together" if ways else "does not say what the step is to do"
            raise WordError(None, problem, "give one of 'with', 'sql', 'aggregate'.")
    if model is InsertSpec:
        places = [place for place in ("after", "before", "between", "into") if fields.get(place) is not None]
        if len(places) != 1:
            told = " and ".join(f"'{place}'" for place in places)
            problem = f"has {told} together" if places else "does not say where the step goes"
            raise WordError(None, problem, "give one of 'after', 'before', 'between'; 'into' for a source.")
    if model is DrainSpec and (fields.get("executor") is None) == (fields.get("host") is None):
        raise WordError(None, "needs an executor or a host", "name an executor, or give 'host'.")
    if model is TuneSpec and len(fields) == 1:
        settings = ", ".join(f"'{word}'" for word in known_words("tune"))
        raise WordError(None, "has no setting", f"give one of {settings}.")


def _plain(kind: str, word: str, value: object) -> object:
    """A list where one is meant, and a text where a number looks like one: executors have numbers for names."""
    if word in _LISTS and isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if word in _LISTS and isinstance(value, int):
        return [value]
    return str(value) if word in _EXECUTORS.get(kind, ()) and type(value) is int else value


def _names(module: ast.AST) -> Iterator[str]:
    """The names that are set when a module is run, at any depth but inside of functions and classes."""
    for node in ast.iter_child_nodes(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.alias():
                yield node.asname or node.name.split(".")[0]
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case _:
                yield from _names(node)


def _told(cause: ValidationError, words: Mapping[str, str] | None = None) -> WordError:
    """The first thing wrong, in our words for it."""
    first = cause.errors()[0]
    fields = {field: word for word, field in _SAID.items()} | dict(words or {})
    path = [str(part) for part in first["loc"]]
    word = ".".join([fields.get(path[0], path[0]), *path[1:]]) if path else None
    if first["type"] == "missing":
        return WordError(word, "is missing")
    said = first["msg"]
    return WordError(word, f"is {first['input']!r}: {said[0].lower()}{said[1:]}")


def _reason(cause: Exception) -> str:
    return (cause.strerror or str(cause)) if isinstance(cause, OSError) else str(cause)
