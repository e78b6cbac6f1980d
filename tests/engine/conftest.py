from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.harness import Inbox


@pytest.fixture
def inbox(tmp_path: Path) -> Callable[..., Inbox]:
    """Makes an inbox of a schema: `inbox("k string, v bigint")`, with a name when a test needs several."""
    return lambda schema, name="in": Inbox(tmp_path / name, schema)
