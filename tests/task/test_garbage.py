from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from midstream.task import garbage
from midstream.task.worker import begin


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_times", (0, 0))
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_what_is_there_is_set_aside_and_not_looked_at_again() -> None:
    much: list[list[int]] = [[] for _ in range(garbage.MANY + 1)]
    garbage.set_aside()
    assert gc.get_freeze_count() >= len(much)
    assert len(gc.get_objects()) < garbage.MANY


@pytest.mark.usefixtures("thawed")
def test_it_does_not_go_on_for_ever() -> None:
    kept = []
    for _ in range(garbage._MOST_TIMES):
        kept.append([[] for _ in range(garbage.MANY + 1)])
        garbage.set_aside()
    frozen = gc.get_freeze_count()
    kept.append([[] for _ in range(garbage.MANY + 1)])
    garbage.set_aside()
    assert gc.get_freeze_count() <= frozen, "what comes later is collected as ever"


@pytest.mark.usefixtures("thawed")
def test_little_is_left_where_it_is() -> None:
    garbage.set_aside()
    frozen = gc.get_freeze_count()
    garbage.set_aside()
    assert gc.get_freeze_count() <= frozen


def test_a_process_that_is_no_worker_of_sparks_keeps_its_garbage_collector() -> None:
    frozen = gc.get_freeze_count()
    begin()
    assert gc.get_freeze_count() == frozen


def test_workers_of_spark_have_little_to_look_through(spark: SparkSession) -> None:
    def left(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "left": [len(gc.get_objects())]})

    found = [spark.range(0, 8, 1, 2).mapInArrow(left, "frozen bigint, left bigint").collect() for _ in range(3)][-1]
    assert all(row.frozen > garbage.MANY and row.left < garbage.MANY for row in found), found
