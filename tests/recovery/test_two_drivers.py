"""Two drivers on one checkpoint: the one that started last goes on, the other stops and says who has taken over."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.engine.run import Run
from midstream.errors import CheckpointError, MidstreamError
from midstream.state.collector import Collector
from midstream.state.directory import DirectoryStore
from midstream.state.ledger import Ledger, read_manifest
from midstream.state.manifest import Manifest, manifest_path
from midstream.state.s3 import S3Store
from midstream.state.store import Store, open_store
from tests.recovery.orders import Shop
from tests.recovery.processes import Driver, wait_until
from tests.recovery.workload import Orders

Plant = Callable[..., None]

pytestmark = pytest.mark.timeout(900)

ELSEWHERE = {"host": "elsewhere", "pid": 4242, "started_at": "2026-01-01T00:00:00.000+00:00"}


@contextmanager
def feeding(shop: Shop) -> Iterator[None]:
    """Input that keeps coming, no faster than it is used up."""
    enough = threading.Event()

    def feed() -> None:
        while not enough.wait(0.1):
            if shop.epochs - shop.committed() < 4:
                shop.add_epochs(1)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def failure_of(run: Run, timeout: float = 400) -> MidstreamError:
    with pytest.raises(MidstreamError) as raised:
        run.await_termination(timeout)
    assert run.status == "failed"
    return raised.value


@pytest.mark.long
def test_a_driver_takes_over_and_is_taken_over(shop: Shop, spark: SparkSession) -> None:
    """Both orders, in two processes: this one runs, then the other, then this one again, while input keeps coming."""
    shop.add_epochs(1)
    here = shop.start(spark)
    here.process_available()
    there = Driver.start(Orders.of(shop, forever=True))
    try:
        with feeding(shop):
            error = failure_of(here)
            assert error.error_class == "CHECKPOINT_TAKEN_OVER"
            assert f"process {there.process.pid} on {socket.gethostname()}" in error.message
            assert f"process {os.getpid()} on {socket.gethostname()}" in error.message
            assert error.hint

            mine = shop.committed()
            wait_until(lambda: shop.committed() > mine + 2, 400, "the other driver goes on")
            again = shop.start(spark)
            result = there.finish()
        assert result["class"] == "CHECKPOINT_TAKEN_OVER"
        assert f"process {os.getpid()} on {socket.gethostname()}" in result["message"]
        assert result["hint"]
    finally:
        there.process.kill_all()
    again.process_available()
    again.stop()
    assert again.status == "stopped"
    shop.check()


@pytest.mark.long
def test_two_drivers_that_start_together(shop: Shop) -> None:
    for number in range(5):
        shop.add_epochs(5)
        drivers = [Driver.start(Orders.of(shop, f"result-{number}-{which}")) for which in range(2)]
        results = [driver.finish() for driver in drivers]
        assert "finished" in [result["ended"] for result in results], results
        for result, other in zip(results, reversed(results), strict=True):
            if result["ended"] != "finished":
                assert result["class"] == "CHECKPOINT_TAKEN_OVER"
                assert f"process {other['pid']} on" in result["message"]
        shop.check()


def test_the_same_process_starts_it_once_more(shop: Shop, spark: SparkSession) -> None:
    """Spark stops the first query by itself; the handle on it says why."""
    shop.add_epochs(1)
    first = shop.start(spark)
    first.process_available()
    second = shop.start(spark)
    error = failure_of(first)
    assert error.error_class == "CHECKPOINT_TAKEN_OVER"
    assert f"process {os.getpid()} on {socket.gethostname()}" in error.message
    assert "generation 2" in error.message

    shop.add_epochs(1)
    second.process_available()
    second.stop()
    assert second.exception is None
    shop.check()


def test_a_start_that_fails_leaves_the_running_driver_alone(shop: Shop, spark: SparkSession) -> None:
    shop.add_epochs(1)
    run = shop.start(spark)
    run.process_available()
    rate = ms.source("rate", lambda spark: spark.readStream.format("rate").load())
    with pytest.raises(CheckpointError) as raised:
        rate.sink("out", ms.sinks.noop()).start(spark, shop.checkpoint)
    assert raised.value.error_class == "CHECKPOINT_OF_ANOTHER_PIPELINE"

    shop.add_epochs(1)
    run.process_available()
    run.stop()
    shop.check()


def committing_first(kind: type[Store], epoch: int, generation: int) -> Callable[[Store, str, bytes | pa.Buffer], bool]:
    """`create` of a store in a world in which another driver commits an epoch in the very moment we want to."""
    create = kind.create

    def patched(self: Store, path: str, data: bytes | pa.Buffer) -> bool:
        if path == manifest_path(epoch):
            driver = {"generation": generation, **ELSEWHERE}
            create(self, f"drivers/{generation:06d}.json", json.dumps(driver).encode())
            body = json.loads(bytes(data))
            create(self, path, json.dumps({**body, "driver": driver}).encode())
        return create(self, path, data)

    return patched


def test_a_successor_commits_the_same_epoch_first(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add_epochs(3)
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStore, "create", committing_first(DirectoryStore, epoch=1, generation=7))
        error = failure_of(shop.start(spark))
    assert error.error_class == "CHECKPOINT_TAKEN_OVER"
    assert "process 4242 on elsewhere" in error.message
    assert shop.committed() == 1, "it went on after it had lost"

    shop.run_to_end(spark)
    shop.check()


@pytest.mark.parametrize("kind", [DirectoryStore, pytest.param(S3Store, marks=pytest.mark.long)])
def test_a_predecessor_commits_the_same_epoch_first(
    kind: type[Store], request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had not noticed us yet, and will at its next commit: if we stopped too, nobody would go on."""
    shop: Shop = request.getfixturevalue("shop" if kind is DirectoryStore else "remote_shop")
    shop.add_epochs(1)
    shop.run_to_end(spark)
    shop.add_epochs(2)
    monkeypatch.setattr(kind, "create", committing_first(kind, epoch=1, generation=1))
    run = shop.run_to_end(spark)
    assert run.status == "stopped"
    assert read_manifest(shop.store, 1).driver.pid == 4242
    assert read_manifest(shop.store, 2).driver.pid == os.getpid()
    shop.check()


def test_a_predecessor_writes_sparks_log_once_more(shop: Shop, spark: SparkSession, fault: Plant) -> None:
    """It finished an epoch while we started, and Spark finds its own log written by somebody else."""
    shop.add_epochs(2)
    commit = Path(shop.checkpoint, "spark", "commits", "1")
    fault("finalised", lambda: commit.write_text('v1\n{"nextBatchWatermarkMs":0}'), after=1)
    run = shop.start(spark)
    wait_until(lambda: run.last_epoch == 1, 60, "the epoch is committed")
    shop.add_epochs(1)
    run.process_available()
    run.stop()
    assert run.status == "stopped"
    shop.check()


def test_a_successor_writes_sparks_log(shop: Shop, spark: SparkSession, fault: Plant) -> None:
    """Spark itself notices first: the error is the same and names the successor."""
    shop.add_epochs(2)

    def take_over() -> None:
        driver = {"generation": 7, **ELSEWHERE}
        Path(shop.checkpoint, "drivers", "000007.json").write_text(json.dumps(driver))
        Path(shop.checkpoint, "spark", "commits", "0").write_text('v1\n{"nextBatchWatermarkMs":0}')

    fault("finalised", take_over)
    error = failure_of(shop.start(spark))
    assert error.error_class == "CHECKPOINT_TAKEN_OVER"
    assert "process 4242 on elsewhere" in error.message

    fault("finalised", lambda: None)
    shop.run_to_end(spark)
    shop.check()


def test_many_drivers_commit_one_epoch_at_once(tmp_path: Path) -> None:
    """The bare commit: of drivers that all believe to hold the checkpoint, exactly one wins each epoch."""
    store = open_store(str(tmp_path))
    ledger = Ledger.open(store)
    rivals = [Ledger(store, ledger.checkpoint_id, ledger.driver) for _ in range(8)]
    for epoch in range(20):
        barrier = threading.Barrier(len(rivals))
        outcomes: list[object] = []

        def commit(rival: Ledger, who: str, epoch: int = epoch, barrier: threading.Barrier = barrier) -> None:
            manifest = Manifest(ledger.checkpoint_id, epoch, 1, ledger.driver, who)
            barrier.wait()
            try:
                rival.commit(manifest)
                outcomes.append(who)  # noqa: B023 (joined below)
            except CheckpointError as error:
                outcomes.append(error)  # noqa: B023

        threads = [threading.Thread(target=commit, args=(rival, str(n))) for n, rival in enumerate(rivals)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, str)]
        assert ledger.read(epoch).committed_at == winner
        losers = [outcome for outcome in outcomes if isinstance(outcome, CheckpointError)]
        assert {loser.error_class for loser in losers} == {"CHECKPOINT_TAKEN_OVER"}
        assert len(losers) == len(rivals) - 1


def test_the_answer_to_a_commit_gets_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that tries again by itself finds what it put itself: that is no other driver."""
    create = DirectoryStore.create

    def twice(self: DirectoryStore, path: str, data: bytes | pa.Buffer) -> bool:
        create(self, path, data)
        return create(self, path, data)

    ledger = Ledger.open(open_store(str(tmp_path)))
    monkeypatch.setattr(DirectoryStore, "create", twice)
    ledger.commit(Manifest(ledger.checkpoint_id, 0, 1, ledger.driver, "now"))
    assert ledger.epochs() == [0]


def test_a_successor_spares_merged_files_a_predecessor_may_commit(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    first = Ledger.open(store)
    first.commit(Manifest(first.checkpoint_id, 5, 1, first.driver, "now"))
    merged = f"segments/step/main/{4:012d}-g{first.driver.generation:06d}-{'a' * 32}-00000.seg"
    delta = f"segments/step/main/{4:012d}-00000-{'b' * 32}.seg"
    store.put(merged, b"")
    store.put(delta, b"")
    second = Ledger.open(store)
    Collector(second, retain=5).recover()
    assert [item.path for item in store.list("segments")] == [merged]

    long_ago = datetime.now(UTC).timestamp() - 7200
    os.utime(tmp_path / merged, (long_ago, long_ago))
    Collector(second, retain=5).recover()
    assert not list(store.list("segments"))


def test_stopping_from_a_callback(shop: Shop, spark: SparkSession) -> None:
    """`on_epoch` is called by the stream's own thread, which cannot wait for itself."""
    shop.add_epochs(3)
    run = shop.start(spark)
    run.on_epoch(lambda report: run.stop())
    assert run.await_termination(60)
    assert run.status == "stopped"
    shop.run_to_end(spark)
    shop.check()


def test_stopping_while_an_epoch_begins(shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream's thread has handed an epoch over that has not begun yet: neither waits for the other for ever."""
    handed_over = threading.Event()
    on_batch = Run._on_batch

    def slow(self: Run, *arguments: object) -> None:
        handed_over.set()
        time.sleep(1)
        on_batch(self, *arguments)  # type: ignore[arg-type]

    shop.add_epochs(1)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_on_batch", slow)
        run = shop.start(spark)
        assert handed_over.wait(60)
        run.stop()
    assert run.status == "stopped"
    assert shop.committed() == -1
    shop.run_to_end(spark)
    shop.check()
