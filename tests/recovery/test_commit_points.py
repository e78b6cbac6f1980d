"""Failures at every step of the commit: what came before it leaves no trace, what came after it is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from midstream.engine import faults
from midstream.errors import MidstreamError
from midstream.state.directory import DirectoryStore
from midstream.state.manifest import MANIFESTS
from tests.recovery.orders import SINKS, Shop, segments_needed, segments_stored
from tests.recovery.processes import Driver
from tests.recovery.workload import Orders

Plant = Callable[..., None]

BEFORE_COMMIT = ["executed"]
AFTER_COMMIT = ["committed", *(f"finalised:{sink}" for sink in SINKS), "finalised"]


class PlantedError(Exception):
    """Raised where a test wants the driver to fail."""


def fail() -> None:
    raise PlantedError("planted by the test")


def run_to_failure(shop: Shop, spark: SparkSession) -> MidstreamError:
    """Run until an epoch fails. The error is the same however it is asked for."""
    run = shop.start(spark)
    with pytest.raises(MidstreamError) as raised:
        run.process_available()
    assert run.exception is raised.value
    assert run.status == "failed"
    with pytest.raises(MidstreamError) as again:
        run.await_termination()
    assert again.value is raised.value
    run.stop()
    assert run.status == "failed"
    return raised.value


@pytest.mark.parametrize(
    "point",
    [
        # Sinks that are finished one by one are alike; the short suite has them all at once.
        pytest.param(point, marks=pytest.mark.long if ":" in point else ())
        for point in BEFORE_COMMIT + AFTER_COMMIT
    ],
)
def test_a_failure_at_a_point_of_the_commit(point: str, shop: Shop, spark: SparkSession, fault: Plant) -> None:
    shop.add_epochs(2)
    fault(point, fail, after=1)
    error = run_to_failure(shop, spark)
    assert error.error_class == "EPOCH_FAILED"
    assert error.message.startswith("PlantedError: planted by the test (at ")
    assert error.hint
    assert shop.committed() == (1 if point in AFTER_COMMIT else 0)

    faults.set_fault(point, None)
    shop.add_epochs(1)
    shop.run_to_end(spark)
    shop.check()


@pytest.mark.parametrize("point", [pytest.param("executed", marks=pytest.mark.long), "committed"])
def test_a_failure_with_the_checkpoint_in_an_object_store(
    point: str, remote_shop: Shop, spark: SparkSession, fault: Plant
) -> None:
    """Spark's own log is then rebuilt from the manifests at every start."""
    test_a_failure_at_a_point_of_the_commit(point, remote_shop, spark, fault)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_inside_the_commit_itself(
    when: str, shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails before the manifest is there, or its answer is lost when it is."""
    create = DirectoryStore.create

    def failing(self: DirectoryStore, path: str, data: bytes | pa.Buffer) -> bool:
        if path != f"{MANIFESTS}/{1:012d}.json":
            return create(self, path, data)
        if when == "after":
            create(self, path, data)
        raise PlantedError("no answer from the store")

    shop.add_epochs(2)
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStore, "create", failing)
        run_to_failure(shop, spark)
    assert shop.committed() == (1 if when == "after" else 0)

    shop.add_epochs(1)
    shop.run_to_end(spark)
    shop.check()


def test_failing_again_and_again_at_the_same_epoch(shop: Shop, spark: SparkSession, fault: Plant) -> None:
    """Every try stages files and writes segments anew; one of them counts, the others are swept away."""
    shop.add_epochs(2)
    for _ in range(2):
        fault("executed", fail, after=0 if shop.committed() == 0 else 1)
        run_to_failure(shop, spark)
    orphans = segments_stored(shop.store) - segments_needed(shop.store)
    assert len({path.split("/")[1] for path in orphans}) == 4, "every keyed step wrote segments in vain"

    faults.set_fault("executed", None)
    shop.run_to_end(spark)
    shop.run_to_end(spark)
    shop.check()
    assert segments_stored(shop.store) == segments_needed(shop.store)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_process_dies_right_after_the_commit(shop: Shop, spark: SparkSession) -> None:
    """The manifest is there and no sink has been told: a new process on another machine finishes the epoch."""
    shop.add_epochs(3)
    dead = Driver.start(Orders.of(shop, die_at="committed:1"))
    assert dead.process.wait(600) == -9, dead.process.tail()
    assert shop.committed() == 1
    assert not (shop.root / "changed" / "epoch=1").exists()

    shop.run_to_end(spark)
    shop.check()


def test_a_sink_that_cannot_be_written(shop: Shop, spark: SparkSession) -> None:
    """The epoch is committed and the sinks before this one have it; put right, the others get it too."""
    shop.add_epochs(1)
    shop.run_to_end(spark)
    shop.add_epochs(1)

    with psycopg.connect(shop.dsn) as connection:
        connection.execute(f'ALTER TABLE "{shop.schema}".latest ADD CHECK (n < 0) NOT VALID')
    error = run_to_failure(shop, spark)
    assert error.error_class == "SINK_WRITE_FAILED"
    assert "Epoch 1" in error.message
    assert f"{shop.schema}.latest" in error.message
    assert error.hint

    with pytest.raises(MidstreamError) as again:
        shop.start(spark)
    assert again.value.error_class == "SINK_WRITE_FAILED"

    with psycopg.connect(shop.dsn) as connection:
        connection.execute(f'ALTER TABLE "{shop.schema}".latest DROP CONSTRAINT latest_n_check')
    shop.run_to_end(spark)
    shop.check()


def test_an_epoch_function_that_raises(shop: Shop, spark: SparkSession) -> None:
    shop.add_epochs(1)
    run = shop.start(spark)
    run.process_available()
    calls: Path = shop.root / "calls"
    calls.rename(shop.root / "moved")
    shop.add_epochs(1)
    with pytest.raises(MidstreamError) as raised:
        run.process_available()
    assert raised.value.error_class == "EPOCH_FUNCTION_FAILED"
    assert "write_call" in raised.value.message
    assert "orders.py:" in raised.value.message
    assert "epoch 1" in raised.value.message

    (shop.root / "moved").rename(calls)
    shop.run_to_end(spark)
    shop.check()
