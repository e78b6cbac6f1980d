"""Code that was sent: recorded, then loaded as a module of its own, from a file that keeps what was sent."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from midstream.control.models import Code
from midstream.engine.code import SourceText
from midstream.errors import ControlError

Recorder = Callable[[SourceText], None]


class Uploads:
    """Loads files under a directory of this run. Functions travel by value, so nothing else needs them later."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, code: Code, record: Recorder) -> tuple[Any, SourceText]:
        """The object a file of code names, and the file as it was sent. What is in it is run for that."""
        file = source_of(code)
        record(file)
        module = self._module(file)
        try:
            return getattr(module, code.name), file
        except AttributeError:
            known = [name for name in vars(module) if not name.startswith("_")]
            raise ControlError.no_such_name(code.file, code.name, known) from None

    def _module(self, file: SourceText) -> Any:
        name = f"midstream_upload_{file.sha256[:16]}"
        if name in sys.modules:
            return sys.modules[name]
        # The name of the file sent is for people; the one written is ours alone, so that no path can lead elsewhere.
        path = self._directory / f"{name}.py"
        path.write_text(file.text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as cause:
            del sys.modules[name]
            if isinstance(cause, KeyboardInterrupt):
                raise
            raise ControlError.bad_code(file.file, cause) from cause
        return module


def source_of(code: Code) -> SourceText:
    shown = PurePosixPath(code.file.replace("\\", "/")).name or "code.py"
    return SourceText(code.name, shown, 1, sha256(code.text.encode()).hexdigest(), code.text)
