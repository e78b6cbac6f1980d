from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import Inbox


@pytest.fixture
def inbox(tmp_path: Path) -> Callable[..., Inbox]:
    """Makes an inbox of a schema: `inbox("k string, v bigint")`, with a name when a test needs several."""
    return lambda schema, name="in": Inbox(tmp_path / name, schema)


@pytest.fixture
def set_conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets configuration of the shared session for one test."""
    before: dict[str, str | None] = {}

    def set_(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield set_
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)
