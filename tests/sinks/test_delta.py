from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from midstream.errors import SinkError
from midstream.sinks import Sink, delta
from midstream.sinks.columns import relaxed_schema
from midstream.state.store import open_store
from tests.servers import S3Server
from tests.sinks.harness import HOSTILE_NAMES, Stream, crash_points, every_type, in_parallel, rows, unusual_types

# `midstream.sinks.delta` is the constructor; the module of that name is found only here.
MODULE = sys.modules["midstream.sinks.delta"]
APP = "midstream/checkpoint-1/out"

NewStream = Callable[..., Stream]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def read(uri: str) -> list[tuple[str | None, int]]:
    table = DeltaTable(uri).to_pyarrow_table()
    return sorted(((row["k"], row["n"]) for row in table.to_pylist()), key=str)


def data_files(uri: str) -> set[str]:
    return {str(p.relative_to(uri)) for p in Path(uri).rglob("*.parquet") if "_delta_log" not in p.parts}


def logged_files(uri: str) -> set[str]:
    return set(pa.table(DeltaTable(uri).get_add_actions())["path"].to_pylist())


def test_append_only_commits_the_log(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri)).prepare()
    stream.write(0, rows(("a", 1)), rows(("b", 2)))
    stream.write(1)
    staged = stream.write(2, rows(("a", 3)))
    assert read(uri) == [("a", 1), ("a", 3), ("b", 2)]
    assert any(path.endswith(staged.files[0].path) for path in logged_files(uri))
    assert data_files(uri) == logged_files(uri)
    assert DeltaTable(uri).transaction_version(APP) == 2
    assert DeltaTable(uri).version() == 2


def test_overwrite_holds_the_newest_result(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri), complete=True).prepare()
    stream.write(0, rows(("a", 1)), rows(("b", 2)))
    stream.write(1, rows(("a", 3)))
    assert read(uri) == [("a", 3)]
    stream.write(2)
    assert read(uri) == []
    stream.write(3, rows(("c", 4)))
    assert read(uri) == [("c", 4)]


def test_upsert_merges_on_the_keys_of_the_stream(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri, mode="upsert")).prepare()
    stream.write(0, rows(("a", 1), (None, 2)), rows(("b", 3)))
    stream.write(1, rows(("a", 4), (None, 5), ("c", 6), ("c", 7)), rows(("d", 8)))
    stream.write(2)
    assert read(uri) == [("a", 4), ("b", 3), ("c", 7), ("d", 8), (None, 5)]
    assert data_files(uri) >= logged_files(uri)
    assert not any("midstream" in path for path in data_files(uri))


def test_upsert_with_composite_and_nested_keys(uri: str, new_stream: NewStream) -> None:
    schema = pa.schema(
        [("s", pa.struct([("x", pa.int32())])), ("L ist", pa.list_(pa.int64())), ("b", pa.binary()), ("n", pa.int64())]
    )
    keys = ["s", "L ist", "b"]
    stream = new_stream(delta(uri, mode="upsert", keys=keys), schema=schema, keys=()).prepare()
    row = {"s": {"x": 1}, "L ist": [1], "b": b"1"}
    stream.write(0, pa.Table.from_pylist([{**row, "n": 1}, {**row, "L ist": None, "n": 2}, {"n": 3}], schema))
    stream.write(1, pa.Table.from_pylist([{**row, "n": 8}, {**row, "n": 4}, {"n": 5}, {"s": {"x": 2}, "n": 6}], schema))
    numbers = DeltaTable(uri).to_pyarrow_table()["n"].to_pylist()
    assert sorted(numbers) == [2, 4, 5, 6]


@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_every_type_and_hostile_names(uri: str, new_stream: NewStream, mode: Any) -> None:
    table = every_type()
    for name in HOSTILE_NAMES:
        table = table.append_column(name, pa.array([1, None, 3]))
    stream = new_stream(delta(uri, mode=mode, keys=["UPPER"]), schema=table.schema).prepare()
    stream.write(0, table)
    stream.write(1, table)
    expected = table.cast(relaxed_schema(table.schema)).to_pylist()
    found = DeltaTable(uri).to_pyarrow_table().select(table.column_names).to_pylist()
    assert sorted(found, key=str) == sorted(expected * (2 if mode == "append" else 1), key=str)


def test_types_that_delta_does_not_have_are_named(uri: str, new_stream: NewStream) -> None:
    for field in unusual_types().schema:
        with pytest.raises(SinkError, match=f"UNSUPPORTED_COLUMN_TYPE.*Delta Lake.*'{field.name}'"):
            new_stream(delta(uri), schema=pa.schema([field])).prepare()


def test_statistics_let_readers_skip_files(uri: str, new_stream: NewStream) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "Europe/Rome")), ("n", pa.int64())])
    stream = new_stream(delta(uri), schema=schema).prepare()
    for epoch in range(3):
        at = datetime(2024, 1, 1 + epoch, tzinfo=UTC)
        stream.write(epoch, pa.table({"at": [at], "n": [epoch]}, schema=schema))
    actions = pa.table(DeltaTable(uri).get_add_actions(flatten=True))
    assert sorted(actions["min.n"].to_pylist()) == [0, 1, 2]
    assert actions["num_records"].to_pylist() == [1, 1, 1]
    assert sorted(actions["max.at"].to_pylist())[0] == datetime(2024, 1, 1, tzinfo=UTC)
    for column, value in (("n", 1), ("at", datetime(2024, 1, 2, tzinfo=UTC))):
        found = DeltaTable(uri).to_pyarrow_table(filters=[(column, "=", value)])
        assert found["n"].to_pylist() == [1]


def test_finalising_twice_changes_nothing(uri: str, new_stream: NewStream) -> None:
    for mode in ("append", "upsert", "overwrite"):
        stream = new_stream(delta(f"{uri}/{mode}", mode=mode)).prepare()
        first = stream.write(0, rows(("a", 1)))
        second = stream.write(1, rows(("b", 2)))
        before = read(f"{uri}/{mode}"), DeltaTable(f"{uri}/{mode}").version()
        restarted = new_stream(delta(f"{uri}/{mode}", mode=mode)).prepare()
        for staged in (second, first, second):
            stream.finalise(staged)
            restarted.finalise(staged)
        assert (read(f"{uri}/{mode}"), DeltaTable(f"{uri}/{mode}").version()) == before


@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_a_crash_anywhere_shows_all_or_nothing_and_is_finished_later(
    tmp_path: Path, new_stream: NewStream, mode: Any
) -> None:
    before = [("a", 1), ("b", 2)]
    after = {
        "append": [("a", 1), ("a", 5), ("b", 2), ("c", 3)],
        "upsert": [("a", 5), ("b", 2), ("c", 3)],
        "overwrite": [("a", 5), ("c", 3)],
    }[mode]
    made: list[tuple[str, Any]] = []

    def prepare() -> Callable[[], None]:
        uri = str(tmp_path / f"table{len(made)}")
        stream = new_stream(delta(uri, mode=mode)).prepare()
        stream.write(0, rows(("a", 1), ("b", 2)))
        staged = stream.stage(1, rows(("a", 5)), rows(("c", 3)))
        made.append((uri, staged))
        return lambda: stream.finalise(staged)

    for _ in crash_points(MODULE, prepare):
        uri, staged = made[-1]
        assert read(uri) in (before, after)
        restarted = new_stream(delta(uri, mode=mode)).prepare()
        restarted.finalise(staged)
        assert read(uri) == after
        assert logged_files(uri) <= data_files(uri)
    assert len(made) > 20


def test_two_drivers_finalise_the_same_epoch_at_once(tmp_path: Path, new_stream: NewStream) -> None:
    for mode, expected in (("append", [("a", 1), ("a", 5), ("c", 3)]), ("upsert", [("a", 5), ("c", 3)])):
        uri = str(tmp_path / mode)
        stream = new_stream(delta(uri, mode=mode)).prepare()  # type: ignore[arg-type]
        stream.write(0, rows(("a", 1)))
        staged = stream.stage(1, rows(("a", 5)), rows(("c", 3)))
        rivals = [new_stream(delta(uri, mode=mode)).prepare() for _ in range(3)]  # type: ignore[arg-type]
        in_parallel([partial(rival.finalise, staged) for rival in rivals])
        assert read(uri) == expected


def test_other_writers_of_the_table(uri: str, new_stream: NewStream) -> None:
    append = new_stream(delta(uri)).prepare()
    upsert = new_stream(delta(uri, mode="upsert"), sink_id="upsert").prepare()

    def external() -> None:
        for number in range(10):
            write_deltalake(uri, rows((f"external{number}", number)), mode="append")

    def appended() -> None:
        for epoch in range(10):
            append.write(epoch, rows((f"append{epoch}", epoch)))

    def upserted() -> None:
        for epoch in range(10):
            upsert.write(epoch, rows(("same", epoch)))

    in_parallel([external, appended, upserted])
    expected = [(f"{who}{n}", n) for who in ("external", "append") for n in range(10)] + [("same", 9)]
    assert read(uri) == sorted(expected)


def test_a_table_made_by_several_at_once(tmp_path: Path, new_stream: NewStream) -> None:
    for attempt in range(5):
        uri = str(tmp_path / f"table{attempt}")
        streams = [new_stream(delta(uri), sink_id=str(i)) for i in range(4)]
        in_parallel([stream.prepare for stream in streams])
        for stream in streams:
            stream.write(0, rows((stream.context.sink_id, 1)))
        assert len(read(uri)) == 4


def test_conflicts_without_end_are_an_error(uri: str, new_stream: NewStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "RETRY_WAITS", (0.0, 0.0))
    stream = new_stream(delta(uri, mode="upsert")).prepare()
    stream.write(0, rows(("a", 1)))
    merge = DeltaTable.merge

    def raced(table: DeltaTable, *given: Any, **named: Any) -> Any:
        write_deltalake(uri, rows(("x", 1)), mode="append")
        return merge(table, *given, **named)

    monkeypatch.setattr(DeltaTable, "merge", raced)
    with pytest.raises(SinkError, match=r"SINK_WRITE_FAILED.*Epoch 1"):
        stream.write(1, rows(("a", 2)))
    monkeypatch.undo()
    stream.write(1, rows(("a", 2)))
    assert read(uri) == [("a", 2), ("x", 1), ("x", 1)]


def test_leftovers_of_failed_attempts_go_unless_the_commit_was_earlier(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri)).prepare()
    staged = stream.stage(0, rows(("a", 1)))
    assert len(data_files(uri)) == 2
    stream.finalise(staged)
    assert data_files(uri) == logged_files(uri)
    # An older copy of the checkpoint stages epoch 0 anew: the committed file must stay.
    stream.write(0, rows(("b", 2)))
    assert read(uri) == [("a", 1)]


def test_vacuum_finds_what_a_crash_left(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri)).prepare()
    stream.write(0, rows(("a", 1)))
    stream.stage(1, rows(("a", 1)))
    DeltaTable(uri).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert data_files(uri) == logged_files(uri)
    assert read(uri) == [("a", 1)]


@pytest.mark.parametrize("complete", [False, True])
def test_tables_with_partitions_and_constraints(uri: str, new_stream: NewStream, complete: bool) -> None:
    schema = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False), ("x", pa.int32())])
    DeltaTable.create(uri, schema, partition_by=["k"])
    DeltaTable(uri).alter.add_constraint({"positive": "n > 0"})
    stream = new_stream(delta(uri), complete=complete).prepare()
    stream.write(0, rows(("a b", 1), (None, 2)), rows(("a b", 3)))
    stream.write(1, rows(("c", 4)))
    assert read(uri) == ([("c", 4)] if complete else [("a b", 1), ("a b", 3), ("c", 4), (None, 2)])
    assert not any("midstream" in path for path in data_files(uri))
    with pytest.raises(SinkError, match=r"SINK_WRITE_FAILED.*Epoch 2"):
        stream.write(2, rows(("c", -1)))
    if complete:
        stream.write(3)
        assert read(uri) == []


def test_a_partitioned_table_survives_a_crash_anywhere(tmp_path: Path, new_stream: NewStream) -> None:
    made: list[tuple[str, Any]] = []

    def prepare() -> Callable[[], None]:
        uri = str(tmp_path / f"table{len(made)}")
        DeltaTable.create(uri, rows().schema, partition_by=["k"])
        stream = new_stream(delta(uri)).prepare()
        staged = stream.stage(0, rows(("a", 1)), rows(("b", 2)))
        made.append((uri, staged))
        return lambda: stream.finalise(staged)

    for _ in crash_points(MODULE, prepare):
        uri, staged = made[-1]
        assert read(uri) in ([], [("a", 1), ("b", 2)])
        new_stream(delta(uri)).prepare().finalise(staged)
        assert read(uri) == [("a", 1), ("b", 2)]


def test_columns_only_the_table_has_are_null(uri: str, new_stream: NewStream) -> None:
    DeltaTable.create(uri, pa.schema([("x", pa.int32()), ("n", pa.int64()), ("k", pa.string())]))
    new_stream(delta(uri)).prepare().write(0, rows(("a", 1)))
    new_stream(delta(uri, mode="upsert"), sink_id="upsert").prepare().write(0, rows(("a", 2), ("b", 3)))
    assert DeltaTable(uri).to_pyarrow_table().sort_by("k").to_pylist() == [
        {"x": None, "n": 2, "k": "a"},
        {"x": None, "n": 3, "k": "b"},
    ]


def test_a_schema_that_does_not_fit_names_the_columns(uri: str, new_stream: NewStream) -> None:
    there = pa.schema([("k", pa.int64()), pa.field("must", pa.int64(), nullable=False), ("l", pa.list_(pa.int32()))])
    DeltaTable.create(uri, there)
    schema = pa.schema([("k", pa.string()), ("K2", pa.int64()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(SinkError, match="SINK_SCHEMA_MISMATCH") as caught:
        new_stream(delta(uri), schema=schema).prepare()
    for part in ("'k' is long in the table and string", "'K2' is not in", "'must' of the table is NOT NULL", "'l' is"):
        assert part in str(caught.value)


def test_modes_and_keys_are_checked(uri: str, new_stream: NewStream) -> None:
    with pytest.raises(SinkError, match=r"UNKNOWN_SINK_MODE.*'merge'"):
        delta(uri, mode="merge")  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="APPEND_OF_COMPLETE_RESULT"):
        new_stream(delta(uri, mode="append"), complete=True).prepare()
    with pytest.raises(SinkError, match="NO_UPSERT_KEYS"):
        new_stream(delta(uri, mode="upsert"), keys=()).prepare()
    with pytest.raises(SinkError, match=r"UNKNOWN_UPSERT_KEYS.*'K'.*'k', 'n'"):
        new_stream(delta(uri, mode="upsert", keys=["K"])).prepare()
    with pytest.raises(SinkError, match="DUPLICATE_COLUMNS"):
        new_stream(delta(uri), schema=pa.schema([("a", pa.int64()), ("A", pa.int64())])).prepare()
    assert not DeltaTable.is_deltatable(uri)
    DeltaTable.create(uri, rows().schema, configuration={"delta.appendOnly": "true"})
    new_stream(delta(uri)).prepare()
    with pytest.raises(SinkError, match="TABLE_IS_APPEND_ONLY"):
        new_stream(delta(uri, mode="upsert")).prepare()


def test_a_checkpoint_older_than_the_table_is_refused(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri)).prepare()
    stream.write(5, rows(("a", 1)))
    with pytest.raises(SinkError, match=r"SINK_AHEAD_OF_CHECKPOINT.*epoch 5.*come to 4"):
        stream.with_facts(last_epoch=4).prepare()
    stream.with_facts(last_epoch=5).prepare()
    new_stream(delta(uri), checkpoint_id="new").with_facts(last_epoch=-1).prepare().write(0, rows(("b", 2)))
    assert read(uri) == [("a", 1), ("b", 2)]


def test_a_table_that_vanished_is_an_error(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri))
    with pytest.raises(SinkError, match="SINK_WRITE_FAILED"):
        stream.write(0, rows(("a", 1)))


def test_other_object_stores_are_refused() -> None:
    with pytest.raises(SinkError, match=r"BAD_SINK_TARGET.*gs://"):
        delta("gs://bucket/table")


def test_the_log_names_the_epoch_for_auditors(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri)).prepare()
    stream.write(7, rows(("a", 1)))
    log = Path(uri, "_delta_log", f"{1:020d}.json").read_text().splitlines()
    (txn,) = (json.loads(line)["txn"] for line in log if "txn" in json.loads(line))
    assert (txn["appId"], txn["version"]) == (APP, 7)


def test_epochs_stay_known_after_a_log_checkpoint(uri: str, new_stream: NewStream) -> None:
    stream = new_stream(delta(uri)).prepare()
    staged = stream.write(0, rows(("a", 1)))
    DeltaTable(uri).create_checkpoint()
    for number in range(3):
        other = CommitProperties(app_transactions=[Transaction("other", number)])
        write_deltalake(uri, rows(("x", number)), mode="append", commit_properties=other)
    DeltaTable(uri).create_checkpoint()
    new_stream(delta(uri)).prepare().finalise(staged)
    assert read(uri).count(("a", 1)) == 1


def test_on_s3(s3_server: S3Server, tmp_path: Path) -> None:
    options = {
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": s3_server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_access_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    for mode, storage_options in (("append", options), ("upsert", s3_server.options)):
        uri = s3_server.url(f"delta/{mode}")

        def sink(uri: str = uri, mode: Any = mode, storage_options: dict[str, str] = storage_options) -> Sink:
            return delta(uri, mode=mode, storage_options=storage_options)

        def stream(sink: Sink) -> Stream:
            return Stream.into(sink, s3_server.url("delta-chk"), options=s3_server.options).prepare()

        staged = stream(sink()).write(0, rows(("a", 1), (None, 2)), rows(("b", 3)))
        next_staged = stream(sink()).stage(1, rows(("a", 4)))
        rivals = [stream(sink()) for _ in range(3)]
        in_parallel([partial(rival.finalise, next_staged) for rival in rivals])
        stream(sink()).finalise(staged)
        found = DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist()
        expected = [("a", 4), ("b", 3), (None, 2)] + ([("a", 1)] if mode == "append" else [])
        assert sorted(((row["k"], row["n"]) for row in found), key=str) == sorted(expected, key=str)
        assert "secret" not in str(sink().describe())
    left = [info.path for info in open_store(s3_server.url("delta/append"), s3_server.options).list("")]
    assert len([path for path in left if path.startswith("midstream-")]) == 3


def test_the_package_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SinkError, match=r"(?s)MISSING_PACKAGE.*deltalake.*midstream\[delta\]"):
        delta("table")
