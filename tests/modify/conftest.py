from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.modify.live import Live


@pytest.fixture
def live(spark: SparkSession, tmp_path: Path) -> Iterator[Live]:
    live = Live(spark, tmp_path)
    yield live
    if hasattr(live, "run"):
        live.run.stop()
