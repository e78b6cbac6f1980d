from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midstream.sinks import Sink
from tests.sinks.harness import Stream


@pytest.fixture
def new_stream(tmp_path: Path) -> Callable[..., Stream]:
    """Makes a stream into a sink, its checkpoint in a directory."""

    def into(sink: Sink, **facts: Any) -> Stream:
        return Stream.into(sink, str(tmp_path / "chk"), **facts)

    return into
