from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from midstream.sinks import Sink
from tests.sinks.harness import Stream


@pytest.fixture
def new_stream(tmp_path: Path) -> Callable[[Sink], Stream]:
    """Makes a stream into a sink, its checkpoint in a directory."""
    return lambda sink, **facts: Stream.into(sink, str(tmp_path / "chk"), **facts)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("midstream-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
