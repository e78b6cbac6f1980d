"""What stays in a checkpoint: retained epochs, merged segments, and nothing that nobody needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.run import Run
from midstream.errors import CheckpointError
from midstream.state.collector import _OTHERS_SECONDS
from midstream.state.compaction import CompactionPolicy
from midstream.state.ledger import read_manifest
from midstream.state.manifest import Manifest
from midstream.state.store import open_store
from tests.engine.harness import Inbox, canonical, run_available

SMALL = CompactionPolicy(deltas=2, runs=2, dirty_ratio=0.5)
NEVER = CompactionPolicy(deltas=10**6, runs=10**6, dirty_ratio=10**6)


def sums(events: Inbox, compaction: CompactionPolicy, sink: ms.sinks.Sink | None = None) -> ms.Pipeline:
    keyed = events.source().key_by("k")
    counted = keyed.aggregate("sums", compaction=compaction, n=F.count("*"), s=F.sum("v"), d=F.count_distinct("v"))
    return counted.sink("out", sink or ms.sinks.noop())


def epochs_of(checkpoint: Path) -> list[int]:
    return sorted(int(file.stem) for file in (checkpoint / "manifests").iterdir())


def segments_of(checkpoint: Path) -> set[str]:
    files = (checkpoint / "segments").rglob("*")
    return {file.relative_to(checkpoint).as_posix() for file in files if file.is_file()}


def manifests_of(checkpoint: Path) -> list[Manifest]:
    store = open_store(str(checkpoint))
    return [read_manifest(store, epoch) for epoch in epochs_of(checkpoint)]


def needed_by(manifests: list[Manifest]) -> set[str]:
    return set().union(*(manifest.paths for manifest in manifests))


def expected_after(spark: SparkSession, events: Inbox, epoch: int) -> list[object]:
    files = sorted(events.directory.glob("*.parquet"))[: epoch + 1]
    batch = spark.read.schema(events.schema).parquet(*map(str, files)).groupBy("k")
    return canonical(batch.agg(F.count("*").alias("n"), F.sum("v").alias("s"), F.count_distinct("v").alias("d")))


def state_of(run: Run, epoch: int | None = None) -> list[object]:
    table = run.read_state("sums", epoch=epoch)
    return canonical(table.rename_columns(["k", "n", "s", "d"]))


@pytest.fixture
def events(inbox: Callable[..., Inbox]) -> Inbox:
    """Ten epochs: a key that changes in each, one in some, and one of each epoch's own."""
    events = inbox("k string, v bigint")
    for epoch in range(10):
        rows = [("always", epoch), (f"own{epoch}", 1)]
        events.add(*rows, *([("sometimes", epoch)] if epoch % 3 == 0 else []))
    return events


@pytest.mark.parametrize("retain", [1, 3, 100])
@pytest.mark.parametrize("compaction", [SMALL, NEVER], ids=["merging", "never merging"])
def test_past_epochs_go_and_retained_ones_stay_readable(
    spark: SparkSession, tmp_path: Path, events: Inbox, retain: int, compaction: CompactionPolicy
) -> None:
    chk = tmp_path / "chk"
    run = run_available(sums(events, compaction), spark, chk, retain_epochs=retain)
    kept = list(range(max(0, 10 - retain), 10))
    assert epochs_of(chk) == kept
    assert segments_of(chk) >= needed_by(manifests_of(chk))
    for epoch in kept[:2] + kept[-1:]:
        assert state_of(run, epoch) == expected_after(spark, events, epoch)
    if kept[0] > 0:
        with pytest.raises(CheckpointError, match="no epoch 0"):
            run.read_state("sums", epoch=0)


def test_superseded_segments_and_staged_files_vanish(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    """One epoch at a time, so that every merge is finished and offered to the next commit."""
    events, chk = inbox("k string, v bigint"), tmp_path / "chk"
    run = sums(events, SMALL, ms.sinks.memory()).start(spark, str(chk), retain_epochs=1)
    merged = 0
    for epoch in range(12):
        events.add(("always", epoch), (f"own{epoch}", 1))
        run.process_available()
        _wait_until(lambda: run._runner.compactor.idle)
        table = read_manifest(open_store(str(chk)), epoch).steps["sums"].tables["main"]
        merged += any(segment.level > 0 and segment.epoch_to == epoch - 1 for segment in table.segments)
    run.stop()
    (last,) = manifests_of(chk)
    # Twelve epochs by two partitions wrote 24 deltas of this table, and merging goes on beside the stream.
    assert len(last.steps["sums"].tables["main"].segments) <= 8
    assert merged >= 3
    # Beyond what is needed there may be the outputs of a merge that no commit has taken yet.
    extra = segments_of(chk) - last.paths
    assert all("-g000001-" in path for path in extra)
    staged = [file.relative_to(chk).as_posix() for file in (chk / "staging").rglob("*") if file.is_file()]
    assert staged
    assert all("/000000000011/" in path for path in staged)
    assert state_of(run) == expected_after(spark, events, 11)


@pytest.mark.long
def test_results_stay_right_through_many_merges(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    """All levels: deltas, runs, base; with keys that come, change, are forgotten and come back."""
    events, chk = inbox("k int, v bigint"), tmp_path / "chk"
    step = (
        events.source()
        .key_by("k")
        .stateful_per_key(
            "last", _last_or_forget, state="v bigint", output="k int, v bigint", compaction=SMALL, parallelism=2
        )
    )
    run = step.sink("out", ms.sinks.noop()).start(spark, str(chk), retain_epochs=2)
    model: dict[int, int] = {}
    levels: set[int] = set()
    for epoch in range(30):
        rows = [(k, 0 if (k + epoch) % 4 == 0 else epoch) for k in range(epoch % 5, 20, 3)]
        if epoch == 1:
            # A base much larger than what comes after: merges of merges, which must not lose what hides its rows.
            rows += [(k, 1) for k in range(1000, 3000)]
        events.add(*rows)
        for k, v in rows:
            model.pop(k, None)
            model.update({k: v} if v else {})
        run.process_available()
        if epoch % 2:
            _wait_until(lambda: run._runner.compactor.idle)
        segments = run._runner.last.steps["last"].tables["state"].segments
        levels |= {segment.level for segment in segments}
        assert run.epochs()[-1].state_rows == len(model)
    assert levels == {0, 1, 2}
    assert {row["k"]: row["v"] for row in run.read_state("last").to_pylist()} == model
    run.stop()
    again = run_available(step.sink("out", ms.sinks.noop()), spark, chk, retain_epochs=2)
    assert {row["k"]: row["v"] for row in again.read_state("last").to_pylist()} == model


def _last_or_forget(
    key: tuple[int], rows: list[dict[str, int]], state: dict[str, int] | None
) -> tuple[list[dict[str, int]], dict[str, int] | None]:
    value = rows[-1]["v"]
    return [], {"v": value} if value else None


def test_orphans_are_collected_and_files_of_the_future_are_not(
    spark: SparkSession, tmp_path: Path, events: Inbox
) -> None:
    chk = tmp_path / "chk"
    run_available(sums(events, NEVER), spark, chk)
    before = segments_of(chk)
    folder = chk / "segments" / "sums" / "main"
    orphans = [
        f"{3:012d}-00000-{'a' * 32}.seg",  # of an attempt of a committed epoch
        f"{9:012d}-00001-{'b' * 32}.seg",  # of the last one
        f"{4:012d}-g000001-{'c' * 32}-00000.seg",  # of a merge of a driver that has been gone for long
    ]
    others = [
        f"{11:012d}-00000-{'d' * 32}.seg",  # of an epoch that is not committed: someone may be writing it
        f"{9:012d}-g000001-{'e' * 32}-00000.seg",  # of a merge of a driver that may still be about to stop
        "notes.txt",  # not ours
    ]
    for name in [*orphans, *others]:
        (folder / name).write_bytes(b"left behind")
    long_ago = time.time() - 10 * _OTHERS_SECONDS
    os.utime(folder / orphans[-1], (long_ago, long_ago))
    events.add(("always", 10))
    run = run_available(sums(events, NEVER), spark, chk)
    after = segments_of(chk)
    assert after - before == needed_by(manifests_of(chk)) - before | {f"segments/sums/main/{name}" for name in others}
    assert before <= after
    assert state_of(run) == expected_after(spark, events, 10)


def test_retention_counts_across_restarts(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events, chk = inbox("k string, v bigint"), tmp_path / "chk"
    for epoch in range(4):
        events.add(("always", epoch))
        run = run_available(sums(events, NEVER), spark, chk, retain_epochs=2)
    assert epochs_of(chk) == [2, 3]
    assert state_of(run, 2) == expected_after(spark, events, 2)
    # The newest segments of a key are needed by both, the first two epochs' are not superseded without merging.
    assert segments_of(chk) == needed_by(manifests_of(chk))


def _wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_runs_shorter_than_a_merge_get_it_done(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    """One epoch a run: no run commits after its merge is finished, so the next one must."""
    events, chk = inbox("k string, v bigint"), tmp_path / "chk"
    for epoch in range(6):
        events.add(("always", epoch), (f"own{epoch}", 1))
        run = run_available(sums(events, SMALL), spark, chk)
    levels = [{s.level for s in manifest.steps["sums"].tables["main"].segments} for manifest in manifests_of(chk)]
    assert 2 in levels[-1], levels
    assert state_of(run) == expected_after(spark, events, 5)
