"""A checkpoint on S3: everything a run needs lies there, so any machine can go on with it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.run import Run
from midstream.state.store import open_store
from tests.engine.harness import Inbox, canonical, run_available
from tests.servers import S3Server

SCHEMA = "k string, v bigint"


def flow_of(*inboxes: Inbox, sink: ms.sinks.Sink | None = None) -> ms.Pipeline:
    first, *others = (inbox.source(inbox.directory.name) for inbox in inboxes)
    events = first.union("all", *others) if others else first
    counted = events.key_by("k").aggregate("counts", n=F.count("*"), s=F.sum("v"))
    return counted.sink("out", sink or ms.sinks.noop())


def check(spark: SparkSession, run: Run, *inboxes: Inbox) -> None:
    batch = inboxes[0].batch(spark)
    for inbox in inboxes[1:]:
        batch = batch.unionByName(inbox.batch(spark))
    expected = batch.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    assert canonical(run.read_state("counts").rename_columns(["k", "n", "s"])) == canonical(expected)


@pytest.fixture
def checkpoint(s3_server: S3Server) -> str:
    return s3_server.url(f"checkpoints/{uuid4().hex}")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Spark's own log goes while a run lasts: nothing may stay there."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


def test_a_run_and_restarts_each_from_nothing_local(
    spark: SparkSession, s3_server: S3Server, checkpoint: str, scratch: Path, inbox: Callable[..., Inbox]
) -> None:
    one, two, sink = inbox(SCHEMA, "one"), inbox(SCHEMA, "two"), ms.sinks.memory()
    epochs = 0
    for start in range(4):
        one.add(("a", start), ("b", 1))
        two.add(("a", 10), (f"new{start}", 1))
        two.add((None, start))
        run = run_available(
            flow_of(one, two, sink=sink), spark, checkpoint, store_options=s3_server.options, retain_epochs=3
        )
        # The files read before are known from the source logs kept with the manifests: none is read again.
        assert [report.rows for report in run.epochs()] == [4, 1]
        epochs += 2
        assert run.last_epoch == epochs - 1
        assert list(scratch.glob("midstream-spark-*")) == []
        check(spark, run, one, two)
    assert sorted(sink.epochs) == list(range(epochs))
    early = run.read_state("counts", epoch=run.last_epoch - 2)
    assert sum(early["count(1)"].to_pylist()) == 5 * 3


def test_source_logs_survive_their_own_merging(
    spark: SparkSession,
    s3_server: S3Server,
    checkpoint: str,
    set_conf: Callable[[str, str], None],
    inbox: Callable[..., Inbox],
) -> None:
    """The file source merges its log from time to time; copies of what it has merged do not pile up."""
    set_conf("spark.sql.streaming.fileSource.log.compactInterval", "3")
    events = inbox(SCHEMA)
    total = 0
    for files in (7, 1, 5, 2):
        for _ in range(files):
            events.add((f"k{total % 3}", total))
            total += 1
        run = run_available(flow_of(events), spark, checkpoint, store_options=s3_server.options, retain_epochs=2)
        assert [report.rows for report in run.epochs()] == [1] * files
    check(spark, run, events)
    copies = {item.path for item in open_store(checkpoint, s3_server.options).list("spark")}
    needed = run._ledger.read(total - 2).paths | run._ledger.read(total - 1).paths
    assert copies == {path for path in needed if path.startswith("spark/")}
    assert len(copies) < total


@pytest.mark.long
def test_another_machine_goes_on(
    spark: SparkSession, s3_server: S3Server, checkpoint: str, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    """The same pipeline by another process with another temporary directory, killed before it could tidy up."""
    events = inbox(SCHEMA)
    events.add(("a", 1), ("b", 2))
    run_available(flow_of(events), spark, checkpoint, store_options=s3_server.options)
    events.add(("a", 3))
    events.add(("c", 4))
    script = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from pyspark.sql import SparkSession
        from tests.engine.harness import Inbox, run_available
        from tests.engine.test_remote_checkpoint import SCHEMA, flow_of

        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        events = Inbox(Path({str(events.directory)!r}), SCHEMA)
        run = run_available(flow_of(events), spark, {checkpoint!r}, store_options={s3_server.options!r})
        print("rows", [report.rows for report in run.epochs()], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {**os.environ, "TMPDIR": str(elsewhere), "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240)
    assert "rows [1, 1]" in done.stdout, done.stderr
    events.add(("b", 5))
    run = run_available(flow_of(events), spark, checkpoint, store_options=s3_server.options)
    assert [report.rows for report in run.epochs()] == [1]
    assert run.last_epoch == 3
    check(spark, run, events)


def test_what_lies_on_the_store(
    spark: SparkSession, s3_server: S3Server, checkpoint: str, inbox: Callable[..., Inbox]
) -> None:
    events, policy = inbox(SCHEMA), ms.CompactionPolicy(deltas=2, runs=2)
    for v in range(8):
        events.add(("a", v), (f"own{v}", v))
    counted = events.source().key_by("k").aggregate("counts", compaction=policy, n=F.count("*"))
    flow = counted.sink("out", ms.sinks.memory())
    run = run_available(flow, spark, checkpoint, store_options=s3_server.options, retain_epochs=2)
    store = open_store(checkpoint, s3_server.options)
    paths = [item.path for item in store.list("")]
    assert [path for path in paths if path.startswith("manifests/")] == [
        f"manifests/{epoch:012d}.json" for epoch in (6, 7)
    ]
    kept = {path for path in paths if path.startswith(("segments/", "spark/"))}
    needed = run._ledger.read(6).paths | run._ledger.read(7).paths
    assert needed <= kept
    # Outputs of a merge that no commit took are all there may be beside.
    assert all("-g000001-" in path for path in kept - needed)
    assert all("/000000000007/" in path for path in paths if path.startswith("staging/"))


def test_for_each_epoch_with_files_on_the_store(
    spark: SparkSession, s3_server: S3Server, checkpoint: str, inbox: Callable[..., Inbox]
) -> None:
    events, seen = inbox(SCHEMA), {}
    events.add(("a", 1), ("b", 2))
    events.add(("a", 3))
    sink = ms.sinks.for_each_epoch(lambda rows, epoch: seen.update({epoch: canonical(rows)}))
    run_available(flow_of(events, sink=sink), spark, checkpoint, store_options=s3_server.options)
    assert seen == {
        0: [(("k", "a"), ("n", 1), ("s", 1)), (("k", "b"), ("n", 1), ("s", 2))],
        1: [(("k", "a"), ("n", 2), ("s", 4))],
    }
