"""The code of changes: packed so that any later driver can run it, with its source text for people to read and compare.

Functions of installed packages travel by name, all others by value: a file that is edited or moved afterwards does not
change what was submitted.
"""

from __future__ import annotations

import inspect
import pickle
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pyspark import cloudpickle as _cloudpickle

from midstream.errors import ChangeError

cloudpickle: Any = _cloudpickle
"""Carries no types."""


@dataclass(frozen=True)
class SourceText:
    """Where a function comes from and what it says."""

    function: str
    file: str
    line: int
    sha256: str
    text: str


def pack(what: object) -> bytes:
    """Anything made of functions and plain data, as bytes. Raises with the function that cannot travel."""
    functions = list(functions_in(what))
    with _by_value(functions):
        for function in functions:
            try:
                cloudpickle.dumps(function)
            except Exception as cause:
                raise ChangeError.not_portable(name_of(function), place_of(function), cause) from cause
        try:
            return bytes(cloudpickle.dumps(what))
        except Exception as cause:
            raise ChangeError.not_portable(str(what), None, cause) from cause


def unpack(data: bytes) -> Any:
    return pickle.loads(data)


def source_texts(what: object) -> list[SourceText]:
    """The texts of all functions in something, as far as their files can be read."""
    texts = []
    for function in functions_in(what):
        try:
            lines, first = inspect.getsourcelines(function)
            file = inspect.getsourcefile(function) or "?"
        except (OSError, TypeError):
            continue
        text = "".join(lines)
        texts.append(SourceText(name_of(function), file, first, sha256(text.encode()).hexdigest(), text))
    return texts


def functions_in(what: object) -> Iterator[Callable[..., Any]]:
    """Every function something holds, however deep."""
    if isinstance(what, FunctionType):
        yield what
    elif is_dataclass(what) and not isinstance(what, type):
        for field in fields(what):
            yield from functions_in(getattr(what, field.name))
    elif isinstance(what, Mapping):
        for value in what.values():
            yield from functions_in(value)
    elif isinstance(what, list | tuple):
        for value in what:
            yield from functions_in(value)


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def place_of(function: Callable[..., Any]) -> str | None:
    """File and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None


@contextmanager
def _by_value(functions: list[Callable[..., Any]]) -> Iterator[None]:
    modules = {
        module
        for function in functions
        if (module := sys.modules.get(function.__module__)) is not None and not _is_installed(module)
    }
    registered = [m for m in modules if m.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: ModuleType) -> bool:
    """Whether a module belongs to Python or to an installed package, which executors have too."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__":
        return True  # always travels by value, and cannot be registered for it
    if file is None:
        return True
    path = Path(file).resolve()
    homes: list[str | Path] = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    ours = Path(__file__).resolve().parents[1]
    return any(path.is_relative_to(Path(home).resolve()) for home in [*homes, ours])
