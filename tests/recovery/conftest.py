from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from midstream.engine import faults
from tests.recovery.orders import Shop
from tests.recovery.summing import Case
from tests.servers import S3Server


@pytest.fixture
def shop(tmp_path: Path, postgres: str) -> Shop:
    """Input, checkpoint and sinks of the pipeline of `orders.py`, all still empty."""
    return Shop(tmp_path, postgres, f"shop_{uuid.uuid4().hex}").create()


@pytest.fixture
def remote_shop(shop: Shop, s3_server: S3Server) -> Shop:
    """One whose checkpoint lies in an object store."""
    return replace(shop, url=s3_server.url(f"recovery/{shop.schema}"), options=s3_server.options)


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession) -> Case:
    """The pipeline of `summing.py`, with its first epoch of input."""
    case = Case(tmp_path, spark)
    case.add_epoch()
    return case


@pytest.fixture
def fault() -> Iterator[Callable[..., None]]:
    """Plants an action at a point of the commit, at the first time it is passed or after some passes."""
    planted: list[str] = []

    def plant(point: str, action: Callable[[], None], after: int = 0) -> None:
        planted.append(point)
        passes = iter(range(after))
        faults.set_fault(point, lambda: action() if next(passes, None) is None else None)

    yield plant
    for point in planted:
        faults.set_fault(point, None)
