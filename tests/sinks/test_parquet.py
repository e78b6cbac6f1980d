from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from midstream.errors import SinkError
from midstream.sinks import parquet
from midstream.state.directory import DirectoryStore
from tests.sinks.harness import HOSTILE_NAMES, Stream, crash_points, every_type, in_parallel, rows

# `midstream.sinks.parquet` is the constructor; the module of that name is found only here.
MODULE = sys.modules["midstream.sinks.parquet"]

NewStream = Callable[..., Stream]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def read(out: Path) -> list[tuple[int, str | None, int]]:
    table = pyarrow.dataset.dataset(out, partitioning="hive", format="parquet").to_table()
    return sorted((row["epoch"], row["k"], row["n"]) for row in table.to_pylist())


def staged_names(out: Path) -> list[str]:
    staging = out.with_name(".out.midstream")
    return sorted(str(path.relative_to(staging)) for path in staging.rglob("*") if ".tmp" not in path.parts)


def test_each_epoch_is_a_folder(out: Path, new_stream: NewStream) -> None:
    stream = new_stream(parquet(out)).prepare()
    stream.write(0, rows(("a", 1)), rows(("b", 2), ("c", 3)))
    stream.write(1)
    stream.write(2, rows(("a", 4)), rows())
    assert read(out) == [(0, "a", 1), (0, "b", 2), (0, "c", 3), (2, "a", 4)]
    assert sorted(os.listdir(out)) == ["epoch=0", "epoch=2"]
    assert staged_names(out) == ["owner.json"]


def test_spark_pyarrow_polars_and_globs_agree(out: Path, new_stream: NewStream, spark: SparkSession) -> None:
    stream = new_stream(parquet(out)).prepare()
    stream.write(9, rows(("a", 1)))
    stream.write(10, rows(("b", 2), (None, 3)))
    stream.stage(11, rows(("x", 9)))
    expected = [("a", 1, 9), ("b", 2, 10), (None, 3, 10)]
    frame = spark.read.parquet(str(out)).orderBy("n")
    assert [tuple(row) for row in frame.collect()] == expected
    assert [tuple(row) for row in frame.where("epoch = 10").select("n").collect()] == [(2,), (3,)]
    assert polars.read_parquet(out, hive_partitioning=True).sort("n").rows() == expected
    assert sum(pq.read_table(path).num_rows for path in out.glob("**/*.parquet")) == 3


def test_every_type_and_hostile_names(out: Path, new_stream: NewStream, spark: SparkSession) -> None:
    table = every_type()
    for name in HOSTILE_NAMES:
        table = table.append_column(name, pa.array([1, None, 3]))
    new_stream(parquet(out), schema=table.schema).prepare().write(0, table)
    read_back = pyarrow.dataset.dataset(out, format="parquet").to_table()
    assert read_back == table
    frame = spark.read.parquet(str(out))
    assert frame.columns == [*table.column_names, "epoch"]
    assert frame.where("`price in €` < 0").count() == 2


def test_finalising_twice_changes_nothing(out: Path, new_stream: NewStream) -> None:
    stream = new_stream(parquet(out)).prepare()
    first = stream.write(0, rows(("a", 1)))
    second = stream.write(1, rows(("b", 2)))
    for staged in (second, first, second):
        stream.finalise(staged)
    assert read(out) == [(0, "a", 1), (1, "b", 2)]


def test_a_crash_anywhere_shows_all_or_nothing_and_is_finished_later(tmp_path: Path, new_stream: NewStream) -> None:
    expected = [(0, "a", 1), (1, "b", 2), (1, "c", 3), (1, "d", 4)]
    made: list[tuple[Path, Stream, Any]] = []

    def prepare() -> Callable[[], None]:
        out = tmp_path / str(len(made)) / "out"
        stream = new_stream(parquet(out)).prepare()
        stream.write(0, rows(("a", 1)))
        staged = stream.stage(1, rows(("b", 2)), rows(("c", 3)), rows(("d", 4)))
        made.append((out, stream, staged))
        return lambda: stream.finalise(staged)

    for _ in crash_points(MODULE, prepare):
        out, stream, staged = made[-1]
        visible = sum(pq.read_table(path).num_rows for path in out.glob("**/*.parquet"))
        assert visible in (1, 4)
        assert read(out) in (expected[:1], expected)
        stream.prepare().finalise(staged)
        assert read(out) == expected
        assert staged_names(out) == ["owner.json"]
        stream.write(2, rows(("e", 5)))
        assert read(out)[-1] == (2, "e", 5)
    assert len(made) > 20


def test_two_drivers_finalise_the_same_epoch_at_once(tmp_path: Path, new_stream: NewStream) -> None:
    for attempt in range(20):
        out = tmp_path / str(attempt) / "out"
        stream = new_stream(parquet(out)).prepare()
        staged = stream.stage(0, *[rows((str(i), i)) for i in range(10)])
        in_parallel([partial(stream.finalise, staged)] * 3)
        assert len(read(out)) == 10
        assert os.listdir(out) == ["epoch=0"]


def test_leftovers_of_earlier_epochs_go_and_later_ones_stay(out: Path, new_stream: NewStream) -> None:
    stream = new_stream(parquet(out)).prepare()
    stream.stage(3, rows(("late", 0)))
    later = stream.stage(5, rows(("b", 2)))
    stream.write(4, rows(("a", 1)))
    assert [name[:12] for name in staged_names(out)] == ["000000000005"] * 3 + ["owner.json"]
    stream.finalise(later)
    assert read(out) == [(4, "a", 1), (5, "b", 2)]


def test_a_lost_staged_file_is_named(out: Path, new_stream: NewStream) -> None:
    stream = new_stream(parquet(out)).prepare()
    staged = stream.stage(0, rows(("a", 1)))
    stream.context.staging.delete([staged.files[0].path])
    with pytest.raises(SinkError, match=r"STAGED_FILE_LOST.*epoch 0.*" + staged.files[0].path):
        stream.finalise(staged)
    assert list(out.iterdir()) == []


def test_the_epoch_column_must_be_free(out: Path, new_stream: NewStream) -> None:
    schema = pa.schema([("Epoch", pa.int64())])
    with pytest.raises(SinkError, match=r"EPOCH_COLUMN_TAKEN.*'Epoch'"):
        new_stream(parquet(out), schema=schema).prepare()
    new_stream(parquet(out, epoch_column="batch"), schema=schema).prepare().write(7, pa.table({"Epoch": [1]}))
    assert [path.name for path in out.iterdir()] == ["batch=7"]


@pytest.mark.parametrize("name", ["", "_epoch", ".epoch", "a/b", "a=b", "a b"])
def test_an_epoch_column_that_readers_would_skip(out: Path, new_stream: NewStream, name: str) -> None:
    with pytest.raises(SinkError, match="BAD_EPOCH_COLUMN"):
        new_stream(parquet(out, epoch_column=name)).prepare()


def test_columns_that_spark_cannot_tell_apart(out: Path, new_stream: NewStream) -> None:
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64()), ("b", pa.int64())])
    with pytest.raises(SinkError, match=r"DUPLICATE_COLUMNS.*'a', 'A'\."):
        new_stream(parquet(out), schema=schema).prepare()


@pytest.mark.parametrize("path", ["s3://bucket/out", "hdfs://host/out", "abfss://c@a/out"])
def test_object_stores_are_refused_with_advice(path: str) -> None:
    with pytest.raises(SinkError, match=r"(?s)PARQUET_NEEDS_DIRECTORY.*delta"):
        parquet(path)


def test_a_file_url_and_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parquet("out/").describe() == {"kind": "parquet", "target": str(tmp_path / "out")}
    assert parquet(f"file://{tmp_path}/my%20out").describe()["target"] == str(tmp_path / "my out")
    with pytest.raises(SinkError, match="BAD_SINK_TARGET"):
        parquet("/")


def test_another_pipeline_is_refused(out: Path, new_stream: NewStream) -> None:
    new_stream(parquet(out)).prepare().write(0, rows(("a", 1)))
    with pytest.raises(SinkError, match=r"SINK_OWNED_BY_ANOTHER.*checkpoint-1.*checkpoint-2"):
        new_stream(parquet(out), checkpoint_id="checkpoint-2").prepare()
    with pytest.raises(SinkError, match="SINK_OWNED_BY_ANOTHER"):
        new_stream(parquet(out), sink_id="other").prepare()
    with pytest.raises(SinkError, match=r"SINK_OWNED_BY_ANOTHER.*epoch_column 'epoch' and not 'batch'"):
        new_stream(parquet(out, epoch_column="batch")).prepare()


def test_an_owner_without_output_is_replaced_and_stops(out: Path, new_stream: NewStream) -> None:
    former = new_stream(parquet(out)).prepare()
    latter = new_stream(parquet(out), checkpoint_id="checkpoint-2").prepare()
    latter.write(0, rows(("b", 2)))
    with pytest.raises(SinkError, match=r"SINK_OWNED_BY_ANOTHER.*checkpoint-2"):
        former.write(0, rows(("a", 1)))
    assert read(out) == [(0, "b", 2)]


def test_epochs_of_unknown_origin_are_refused(out: Path, new_stream: NewStream) -> None:
    new_stream(parquet(out)).prepare().write(0, rows(("a", 1)))
    moved = out.with_name("moved")
    out.rename(moved)
    with pytest.raises(SinkError, match=r"SINK_WITH_UNKNOWN_EPOCHS.*\.moved\.midstream/owner\.json"):
        new_stream(parquet(moved)).prepare()


def test_a_checkpoint_older_than_the_output_is_refused(out: Path, new_stream: NewStream) -> None:
    stream = new_stream(parquet(out)).prepare()
    for epoch in range(3):
        stream.write(epoch, rows(("a", epoch)))
    with pytest.raises(SinkError, match=r"SINK_AHEAD_OF_CHECKPOINT.*epoch 2.*come to 1"):
        stream.with_facts(last_epoch=1).prepare()
    stream.with_facts(last_epoch=2).prepare()
    # Also when the engine does not say how far the checkpoint is: the epoch is there, but from another run.
    with pytest.raises(SinkError, match="SINK_AHEAD_OF_CHECKPOINT"):
        stream.write(2, rows(("b", 2)))
    assert read(out) == [(0, "a", 0), (1, "a", 1), (2, "a", 2)]


def test_a_changed_type_is_refused_and_a_new_column_is_not(out: Path, new_stream: NewStream) -> None:
    list_type = pa.list_(pa.field("element", pa.timestamp("us", "Europe/Rome"), nullable=False))
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("l", list_type)])
    new_stream(parquet(out), schema=schema).prepare().write(0, schema.empty_table(), pa.table(
        {"k": ["a"], "n": [1], "l": pa.array([[0]], list_type)}, schema=schema))  # fmt: skip
    with pytest.raises(SinkError, match=r"SINK_SCHEMA_MISMATCH.*'n' is int64 .* and string in the stream"):
        new_stream(parquet(out), schema=pa.schema([("k", pa.string()), ("n", pa.string())])).prepare()
    relaxed = pa.list_(pa.field("element", pa.timestamp("us", "UTC")))
    new_stream(parquet(out), schema=pa.schema([("l", relaxed), ("new", pa.int64())])).prepare()


def test_a_directory_that_cannot_be_made(tmp_path: Path, new_stream: NewStream) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="SINK_UNREACHABLE"):
        new_stream(parquet(tmp_path / "file" / "out")).prepare()


def test_another_file_system_beside_the_output(
    out: Path, new_stream: NewStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def elsewhere(path: Path, **given: Any) -> os.stat_result:
        found = list(stat(path, **given))
        if path == out:
            found[2] += 1
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", elsewhere)
    with pytest.raises(SinkError, match="PARQUET_NEEDS_ONE_FILE_SYSTEM"):
        new_stream(parquet(out)).prepare()


def test_a_full_disk_while_finalising_is_reported_and_finished_later(
    out: Path, new_stream: NewStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream(parquet(out)).prepare()
    staged = stream.stage(0, rows(("a", 1)))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(SinkError, match=r"SINK_WRITE_FAILED.*Epoch 0.*full"):
            stream.finalise(staged)
    stream.finalise(staged)
    assert read(out) == [(0, "a", 1)]


def test_the_output_is_as_durable_as_the_checkpoint(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(MODULE, "_sync", synced.append)
    for number, options in enumerate([None, {"fsync": "true"}]):
        sink = parquet(out / str(number))
        stream = Stream.into(sink, str(tmp_path / "chk"), options=options).prepare()
        assert isinstance(stream.context.staging, DirectoryStore)
        assert stream.context.staging.fsync == bool(options)
        stream.write(0, rows(("a", 1)))
        assert len(synced) == 2 * number
