from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from midstream.errors import SinkError
from midstream.sinks import postgres as sink_to
from midstream.sinks import staging
from midstream.sinks.postgres_table import TableName
from tests.sinks.harness import HOSTILE_NAMES, Stream, crash_points, every_type, in_parallel, rows, unusual_types

# `midstream.sinks.postgres` is the constructor; the module of that name is found only here.
MODULE = sys.modules["midstream.sinks.postgres"]

NewStream = Callable[..., Stream]
MODES = ["append", "upsert", "overwrite"]


@pytest.fixture
def db(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose search path is a schema of this test alone."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        schema = f"test_{uuid4().hex}"
        connection.execute(sql.SQL("CREATE SCHEMA {0}; SET search_path TO {0}").format(sql.Identifier(schema)))
        yield connection
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@pytest.fixture
def dsn(postgres: str, db: psycopg.Connection[Any]) -> str:
    schema = db.execute("SHOW search_path").fetchone()
    assert schema is not None
    return psycopg.conninfo.make_conninfo(postgres, options=f"-c search_path={schema[0]}")


def read(db: psycopg.Connection[Any], table: str = "t") -> list[tuple[Any, ...]]:
    return sorted(db.execute(sql.SQL("SELECT k, n FROM {}").format(sql.Identifier(table))), key=str)


def test_append(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    stream = new_stream(sink_to(dsn, "t")).prepare()
    stream.write(0, rows(("a", 1)), rows(("b", 2), (None, 3)))
    stream.write(1)
    stream.write(2, rows(("a", 4)))
    assert read(db) == [("a", 1), ("a", 4), ("b", 2), (None, 3)]
    assert db.execute("SELECT * FROM midstream_epochs").fetchall() == [("checkpoint-1", "out", 2)]


def test_upsert_with_null_keys_and_several_rows_for_a_key(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream
) -> None:
    stream = new_stream(sink_to(dsn, "t", mode="upsert")).prepare()
    stream.write(0, rows(("a", 1), (None, 2)), rows(("b", 3)))
    stream.write(1, rows(("a", 4), (None, 5), ("c", 6), ("c", 9), ("c", 7)), rows(("d", 8)))
    assert read(db) == [("a", 4), ("b", 3), ("c", 7), ("d", 8), (None, 5)]


def test_upsert_of_keys_alone(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    stream = new_stream(sink_to(dsn, "t", mode="upsert", keys=["k", "n"])).prepare()
    stream.write(0, rows(("a", 1), ("a", 2)))
    stream.write(1, rows(("a", 1), ("b", 1)))
    assert read(db) == [("a", 1), ("a", 2), ("b", 1)]


def test_overwrite_holds_the_newest_result(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    stream = new_stream(sink_to(dsn, "t"), complete=True).prepare()
    stream.write(0, rows(("a", 1), ("b", 2)))
    stream.write(1, rows(("a", 3)))
    assert read(db) == [("a", 3)]
    stream.write(2)
    assert read(db) == []


@pytest.mark.parametrize("mode", MODES)
def test_every_type_and_hostile_names(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, mode: Any) -> None:
    table = every_type()
    for name in [*HOSTILE_NAMES, "midstream_order"]:
        table = table.append_column(name, pa.array([1, None, 3]))
    sink = sink_to(dsn, '"Hos ""tile"', mode=mode, keys=["UPPER", 'li"st', "struct"])
    stream = new_stream(sink, schema=table.schema).prepare()
    stream.write(0, table)
    stream.write(1, table)
    stream.prepare()
    db.execute("SET timezone TO 'Asia/Tokyo'")
    cursor = db.execute('SELECT * FROM "Hos ""tile" ORDER BY "UPPER"')
    assert [column.name for column in cursor.description or ()] == table.column_names
    found = [dict(zip(table.column_names, row, strict=True)) for row in cursor]
    assert len(found) == (6 if mode == "append" else 3)
    moment = datetime(2024, 2, 29, 23, 59, 59, 999999)
    assert found[0] == {
        **dict.fromkeys([*HOSTILE_NAMES, "midstream_order"], 1),
        "bool": True,
        "tiny": -128,
        "small": 32767,
        "int": -(2**31),
        "big": 2**63 - 1,
        "real": 0.5,
        "Double": 1e300,
        "text": "a\"b',\n\\.\n\\N é 🦆",
        "empty": "",
        "bytes": b"\x00\xff\\",
        "price in €": Decimal("-12345678901234567890.000000000000000001"),
        "day": date(1, 1, 1),
        "at": moment.replace(tzinfo=UTC),
        "local": moment,
        'li"st': ["a", None, "", 'q"\\', "{}", "NULL"],
        "dates": [date(2024, 1, 1), None],
        "nested": [[1, None], [], None],
        "struct": {"a": 1, "b c": "x"},
        "structs": [{"a": None, "b c": 'y"'}, None],
        "map": {"k": 1, "l": None},
        "deep": {"1": {"x": [0.5, None]}},
    }
    assert set(found[-1].values()) == {None}


def test_types_beyond_the_common(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    table = unusual_types()
    infinite = pa.array([float("nan")], pa.float64()), pa.array([float("-inf")], pa.float32())
    for name, column in zip(("nan", "inf"), infinite, strict=True):
        table = table.append_column(name, column)
    table = table.append_column("spans", pa.array([[timedelta(seconds=1), None]], pa.list_(pa.duration("us"))))
    table = table.append_column("nans", pa.array([{"x": float("nan")}]))
    table = table.append_column("blobs", pa.array([[b"\\", b"\x00"]]))
    table = table.append_column("large", pa.array(["x"], pa.large_string()))
    new_stream(sink_to(dsn, "t"), schema=table.schema).prepare().write(0, table)
    (found,) = db.execute("SELECT * FROM t").fetchall()
    assert str(found[3]) == "nan"
    assert found[:3] + found[4:] == (
        time(23, 59, 59, 999999),
        timedelta(days=-3, microseconds=1),
        None,
        float("-inf"),
        [timedelta(seconds=1), None],
        {"x": "nan"},
        [b"\\", b"\x00"],
        "x",
    )


def test_one_column_that_is_null(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    table = pa.table({"s": ["", None, "x"]})
    new_stream(sink_to(dsn, "t"), schema=table.schema).prepare().write(0, table)
    assert db.execute("SELECT s FROM t").fetchall() == [("",), (None,), ("x",)]


def test_many_rows_stream_in_batches(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    table = pa.table({"k": [str(n) for n in range(200_000)], "n": range(200_000)})
    stream = new_stream(sink_to(dsn, "t", mode="upsert")).prepare()
    stream.write(0, table, table)
    assert db.execute("SELECT count(*), sum(n) FROM t").fetchone() == (200_000, sum(range(200_000)))


@pytest.mark.parametrize("mode", MODES)
def test_finalising_twice_changes_nothing(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, mode: Any
) -> None:
    stream = new_stream(sink_to(dsn, "t", mode=mode)).prepare()
    first = stream.write(0, rows(("a", 1)))
    second = stream.write(1, rows(("a", 2)))
    before = read(db)
    for staged in (second, first, second):
        stream.finalise(staged)
    assert read(db) == before


@pytest.mark.parametrize("mode", MODES)
def test_a_crash_anywhere_shows_all_or_nothing_and_is_finished_later(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, mode: Any
) -> None:
    before = [("a", 1), ("b", 2)]
    after = {
        "append": [("a", 1), ("a", 5), ("b", 2), ("c", 3)],
        "upsert": [("a", 5), ("b", 2), ("c", 3)],
        "overwrite": [("a", 5), ("c", 3)],
    }[mode]
    made: list[tuple[str, Any]] = []

    def prepare() -> Callable[[], None]:
        table = f"t{len(made)}"
        stream = new_stream(sink_to(dsn, table, mode=mode), sink_id=table).prepare()
        stream.write(0, rows(("a", 1), ("b", 2)))
        staged = stream.stage(1, rows(("a", 5)), rows(("c", 3)))
        made.append((table, staged))
        return lambda: stream.finalise(staged)

    for _ in crash_points(MODULE, prepare):
        table, staged = made[-1]
        assert read(db, table) in (before, after)
        new_stream(sink_to(dsn, table, mode=mode), sink_id=table).prepare().finalise(staged)
        assert read(db, table) == after
    assert len(made) > 20


@pytest.mark.parametrize("mode", MODES)
def test_two_drivers_finalise_the_same_epoch_at_once(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, mode: Any
) -> None:
    stream = new_stream(sink_to(dsn, "t", mode=mode)).prepare()
    staged = stream.stage(0, rows(*[(str(n), n) for n in range(1000)]))
    in_parallel([lambda: stream.finalise(staged)] * 4)
    assert len(read(db)) == 1000


def test_tables_made_by_several_at_once(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    streams = [new_stream(sink_to(dsn, "t"), sink_id=str(i)) for i in range(4)]
    in_parallel([stream.prepare for stream in streams])
    in_parallel([partial(stream.write, 0, rows(("a", 1))) for stream in streams])
    assert len(read(db)) == 4


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_lost_in_the_middle_is_made_again(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream(sink_to(dsn, "t", mode=mode)).prepare()
    staged = stream.stage(0, rows(("a", 1)), rows(("b", 2)))
    losses = 2

    def losing(*given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        nonlocal losses
        for batch in staging.read_batches(*given, **named):
            yield batch
            if losses:
                losses -= 1
                terminate_others(db)

    monkeypatch.setattr(MODULE, "RETRY_WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(MODULE, "read_batches", losing)
    stream.finalise(staged)
    assert losses == 0
    assert read(db) == [("a", 1), ("b", 2)]


def test_a_lost_answer_to_the_commit_does_not_write_twice(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream(sink_to(dsn, "t")).prepare()
    commit = psycopg.Connection.commit
    lost: list[int] = []

    def losing(connection: psycopg.Connection[Any]) -> None:
        commit(connection)
        if not lost:
            lost.append(1)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(MODULE, "RETRY_WAITS", (0.0, 0.0))
    monkeypatch.setattr(psycopg.Connection, "commit", losing)
    stream.write(0, rows(("a", 1)))
    monkeypatch.undo()
    assert lost
    assert read(db) == [("a", 1)]


def test_a_server_that_stays_away(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "RETRY_WAITS", (0.0, 0.0))
    stream = new_stream(sink_to("postgresql://etl:s3cret@127.0.0.1:1/shop", "t"))
    with pytest.raises(SinkError, match=r"SINK_UNREACHABLE.*etl@127.0.0.1:1/shop") as unreachable:
        stream.prepare()
    with pytest.raises(SinkError, match=r"SINK_WRITE_FAILED.*Epoch 0") as failed:
        stream.write(0, rows(("a", 1)))
    for shown in (str(unreachable.value), str(failed.value), str(stream.sink.describe()), repr(stream.sink)):
        assert "s3cret" not in shown


@pytest.mark.parametrize("dsn", ["postgresql://u:s3cret@[bad/x", "host=x s3cret", "hots=x password=s3cret"])
def test_a_dsn_that_cannot_be_parsed_is_not_shown(dsn: str) -> None:
    with pytest.raises(SinkError, match="BAD_POSTGRES_DSN") as caught:
        sink_to(dsn, "t")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_table_in_another_schema(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    schema = f"Sales.{uuid4().hex}"
    db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    stream = new_stream(sink_to(dsn, f'"{schema}".Totals', mode="upsert")).prepare()
    stream.write(0, rows(("a", 1)))
    stream.prepare().write(1, rows(("a", 2)))
    query = sql.SQL("SELECT k, n, epoch FROM {}, {}")
    tables = sql.Identifier(schema, "Totals"), sql.Identifier(schema, "midstream_epochs")
    assert db.execute(query.format(*tables)).fetchall() == [("a", 2, 1)]
    db.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@pytest.mark.parametrize("text", ["", "a.b.c", '"open', "a..b", '"a"b'])
def test_a_table_name_that_is_none(text: str) -> None:
    with pytest.raises(SinkError, match="BAD_SINK_TARGET"):
        TableName.parse(text)


def test_a_table_of_the_users_own(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    db.execute("CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE DOMAIN positive AS integer CHECK (value > 0)")
    db.execute(
        """CREATE TABLE t (id serial, "Key" varchar(40) PRIMARY KEY, u uuid, j jsonb, l jsonb, m mood, p positive,
        f double precision, at timestamptz DEFAULT now(), tags text[], d numeric(30, 2))"""
    )
    schema = pa.schema(
        [
            ("u", pa.string()),
            ("Key", pa.string()),
            ("j", pa.string()),
            ("l", pa.list_(pa.int64())),
            ("m", pa.string()),
            ("p", pa.int32()),
            ("f", pa.float32()),
            ("tags", pa.list_(pa.string())),
            ("d", pa.decimal128(10, 2)),
        ]
    )
    uuid = uuid4()
    row = {"u": str(uuid), "Key": "a", "j": '{"x": 1}', "l": [1, 2], "m": "sad", "p": 3, "f": 1.5, "tags": ["x"]}
    stream = new_stream(sink_to(dsn, "t", mode="upsert", keys=["Key"]), schema=schema).prepare()
    stream.write(0, pa.Table.from_pylist([row], schema))
    stream.write(1, pa.Table.from_pylist([{**row, "p": 4}], schema))
    found = db.execute('SELECT id, "Key", u, j, l, m, p, f, tags, at IS NULL FROM t').fetchall()
    assert found == [(1, "a", UUID(str(uuid)), {"x": 1}, [1, 2], "sad", 4, 1.5, ["x"], False)]
    with pytest.raises(SinkError, match=r"SINK_WRITE_FAILED.*Epoch 2.*(?s:.*)positive"):
        stream.write(2, pa.Table.from_pylist([{**row, "p": -1}], schema))
    with pytest.raises(SinkError, match=r"SINK_WRITE_FAILED.*Epoch 2.*null value"):
        stream.write(2, pa.Table.from_pylist([{**row, "Key": None}], schema))


def test_text_that_postgres_cannot_hold(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    stream = new_stream(sink_to(dsn, "t")).prepare()
    with pytest.raises(SinkError, match=r"SINK_WRITE_FAILED.*Epoch 0.*0x00"):
        stream.write(0, rows(("a\x00b", 1)))
    assert read(db) == []


def test_a_schema_that_does_not_fit_names_the_columns(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream
) -> None:
    db.execute(
        "CREATE TABLE t (k integer, n integer, must text NOT NULL, g bigint GENERATED ALWAYS AS (1) STORED,"
        " l integer[], o text NOT NULL DEFAULT '')"
    )
    schema = pa.schema(
        [("k", pa.string()), ("n", pa.int64()), ("g", pa.int64()), ("l", pa.list_(pa.string())), ("new", pa.int8())]
    )
    with pytest.raises(SinkError, match=r"SINK_SCHEMA_MISMATCH.*table t") as caught:
        new_stream(sink_to(dsn, "t"), schema=schema).prepare()
    for part in (
        "'k' is integer in the table and string",
        "'n' is integer in the table and int64",
        "'must' of the table is NOT NULL",
        "'g' of the table is generated",
        "'l' is integer[] in the table",
        "'new' is not in the table",
    ):
        assert part in str(caught.value)
    assert "'o'" not in str(caught.value)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        ("", "NO_UNIQUE_INDEX.*'k', 'n'"),
        ("CREATE INDEX ON t (k, n)", "NO_UNIQUE_INDEX"),
        ("CREATE UNIQUE INDEX ON t (k)", "NO_UNIQUE_INDEX"),
        ("CREATE UNIQUE INDEX ON t (k) INCLUDE (n)", "NO_UNIQUE_INDEX"),
        ("CREATE UNIQUE INDEX ON t (k, n) NULLS NOT DISTINCT WHERE n > 0", "NO_UNIQUE_INDEX"),
        ("CREATE UNIQUE INDEX ON t (k, lower(n::text))", "NO_UNIQUE_INDEX"),
        ("ALTER TABLE t ADD UNIQUE (k, n) DEFERRABLE", "NO_UNIQUE_INDEX"),
        ("CREATE UNIQUE INDEX ON t (k, n)", "(?s)UNIQUE_INDEX_TELLS_NULLS_APART.*NULLS NOT DISTINCT"),
        ("CREATE UNIQUE INDEX ON t (n, k) NULLS NOT DISTINCT", None),
        ("ALTER TABLE t ADD PRIMARY KEY (n, k)", None),
    ],
)
def test_an_upsert_needs_its_unique_index(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, index: str, error: str | None
) -> None:
    db.execute("CREATE TABLE t (k text, n bigint)")
    if index:
        db.execute(index)
    stream = new_stream(sink_to(dsn, "t", mode="upsert", keys=["k", "n"]))
    if error is None:
        stream.prepare().write(0, rows(("a", 1), ("a", 1)))
        assert read(db) == [("a", 1)]
    else:
        with pytest.raises(SinkError, match=error) as caught:
            stream.prepare()
        assert 'CREATE UNIQUE INDEX ON "t" ("k", "n") NULLS NOT DISTINCT' in str(caught.value)


def test_modes_keys_and_names_are_checked(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    with pytest.raises(SinkError, match=r"UNKNOWN_SINK_MODE.*'insert'"):
        sink_to(dsn, "t", mode="insert")  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="APPEND_OF_COMPLETE_RESULT"):
        new_stream(sink_to(dsn, "t", mode="append"), complete=True).prepare()
    with pytest.raises(SinkError, match="NO_UPSERT_KEYS"):
        new_stream(sink_to(dsn, "t", mode="upsert"), keys=()).prepare()
    with pytest.raises(SinkError, match="UNKNOWN_UPSERT_KEYS"):
        new_stream(sink_to(dsn, "t", mode="upsert", keys=["x"])).prepare()
    with pytest.raises(SinkError, match="more than 63 bytes"):
        new_stream(sink_to(dsn, "t"), schema=pa.schema([("ü" * 32, pa.int64())])).prepare()
    with pytest.raises(SinkError, match="DUPLICATE_COLUMNS"):
        new_stream(sink_to(dsn, "t"), schema=pa.schema([("a", pa.int64()), ("a", pa.int64())])).prepare()
    with pytest.raises(SinkError, match=r"UNSUPPORTED_COLUMN_TYPE.*PostgreSQL.*'x'"):
        new_stream(sink_to(dsn, "t"), schema=pa.schema([("x", pa.month_day_nano_interval())])).prepare()
    assert db.execute("SELECT to_regclass('t')").fetchone() == (None,)


def test_an_old_server_cannot_upsert_null_keys(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midstream.sinks.postgres_table.NULLS_NOT_DISTINCT_SINCE", 1000)
    with pytest.raises(SinkError, match="POSTGRES_TOO_OLD"):
        new_stream(sink_to(dsn, "t", mode="upsert")).prepare()
    new_stream(sink_to(dsn, "t")).prepare()


def test_a_checkpoint_older_than_the_table_is_refused(
    dsn: str, db: psycopg.Connection[Any], new_stream: NewStream
) -> None:
    stream = new_stream(sink_to(dsn, "t")).prepare()
    stream.write(5, rows(("a", 1)))
    with pytest.raises(SinkError, match=r"SINK_AHEAD_OF_CHECKPOINT.*epoch 5.*come to 4"):
        stream.with_facts(last_epoch=4).prepare()
    stream.with_facts(last_epoch=5).prepare()
    new_stream(sink_to(dsn, "t"), checkpoint_id="new").with_facts(last_epoch=-1).prepare().write(0, rows(("b", 2)))
    assert read(db) == [("a", 1), ("b", 2)]


def test_rights_are_missing(dsn: str, db: psycopg.Connection[Any], new_stream: NewStream) -> None:
    role = f"reader_{uuid4().hex}"
    db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    as_reader = psycopg.conninfo.make_conninfo(dsn, user=role)
    with pytest.raises(SinkError, match="SINK_UNREACHABLE"):
        new_stream(sink_to(as_reader, "t")).prepare()
    db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_the_package_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SinkError, match=r"(?s)MISSING_PACKAGE.*psycopg.*midstream\[postgres\]"):
        sink_to("postgresql://x/y", "t")


def terminate_others(db: psycopg.Connection[Any]) -> None:
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'midstream' AND pid <> pg_backend_pid()"
    )
