"""Stateful steps with functions of the user's own: libraries, tables, types, and what a function must not do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars import DataFrame as Frame
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

import midstream as ms
from midstream.errors import GraphError, UserFunctionError
from midstream.state.hashspace import WHOLE
from midstream.state.keys import group_rows
from midstream.state.manifest import TableState
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import open_store
from midstream.state.tables import TableKind, TableSpec
from midstream.task.userfn import UserFunction
from tests.engine import functions
from tests.engine.harness import Inbox, canonical, hashable, latest, run_available

if TYPE_CHECKING:
    import polars


def text_pyarrow(rows: pa.Table, state: pa.Table) -> Any:
    return functions.with_pyarrow(rows, state)


def text_polars(rows: pl.DataFrame, state: pl.DataFrame) -> Any:
    return functions.with_polars(rows, state)


def text_polars_frame(rows: Frame, state: Frame) -> Any:
    return functions.with_polars(rows, state)


def text_polars_type_checking(rows: polars.DataFrame, state: polars.DataFrame) -> Any:
    return functions.with_polars(rows, state)


def text_pandas(rows: pd.DataFrame, state: pd.DataFrame) -> Any:
    return functions.with_pandas(rows, state)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **functions.TYPED,
    "pyarrow, hints as text": text_pyarrow,
    "polars, hints as text": text_polars,
    "polars, imported by name, hints as text": text_polars_frame,
    "polars, imported for the type checker only": text_polars_type_checking,
    "pandas, hints as text": text_pandas,
}


@pytest.fixture(scope="module")
def summed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, ms.sinks.MemorySink], list[Any]]:
    """The sinks of one pipeline in which every function sums the same rows, and the right sums."""
    directory = tmp_path_factory.mktemp("summed")
    events = Inbox(directory / "in", "k string, v bigint, unused array<int>")
    events.add(("a", 1, []), ("b", 2, None), ("a", 3, [1]))
    events.add(("b", 4, []), (None, 5, []), ("", 6, []))
    events.add(("a", 7, []), (None, 8, []))
    keyed, sinks = events.source().key_by("k"), {name: ms.sinks.memory() for name in FUNCTIONS}
    flows = []
    for number, (name, function) in enumerate(FUNCTIONS.items()):
        step = keyed.stateful(f"sum-{number}", function, state=functions.STATE, output=functions.OUTPUT)
        flows.append(step.sink(f"out-{number}", sinks[name]))
    run_available(ms.pipeline(*flows), spark, directory / "chk")
    return sinks, canonical(events.batch(spark).groupBy("k").agg(F.sum("v").alias("s")))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_in_the_library_of_its_hints(
    summed: tuple[dict[str, ms.sinks.MemorySink], list[Any]], name: str
) -> None:
    sinks, expected = summed
    rows = sinks[name].to_pylist()
    assert {row.pop("library") for row in rows} == {name.partition(",")[0]}
    assert sorted((hashable(row) for row in latest(rows, "k").values()), key=repr) == expected


def test_key_by_key(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    """A function that greets a key once, counts it, and forgets it when told to."""
    events, sink = inbox("k string, n int, word string"), ms.sinks.memory()
    events.add(("a", 1, "hi"), ("b", 1, "hi"), (None, None, "hi"))
    events.add(("a", 1, "on"), ("a", 1, "bye"), ("b", 2, "on"))
    events.add(("a", 1, "again"), (None, None, "bye"), ("b", 1, "on"))

    def visits(
        key: tuple[str, int], rows: list[dict[str, Any]], state: dict[str, Any] | None
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        words = (state["words"] if state else []) + [row["word"] for row in rows]
        output = [{"k": key[0], "n": key[1], "words": words, "new": state is None}]
        return output, None if "bye" in words else {"words": words}

    step = (
        events.source()
        .key_by("k", "n")
        .stateful_per_key(
            "visits", visits, state="words array<string>", output="k string, n int, words array<string>, new boolean"
        )
    )
    run = run_available(step.sink("out", sink), spark, tmp_path / "chk")
    assert canonical(sink.epochs[1]) == canonical(
        pa.Table.from_pylist(
            [
                {"k": "a", "n": 1, "words": ["hi", "on", "bye"], "new": False},
                {"k": "b", "n": 2, "words": ["on"], "new": True},
            ]
        )
    )
    assert canonical(sink.epochs[2]) == canonical(
        pa.Table.from_pylist(
            [
                {"k": "a", "n": 1, "words": ["again"], "new": True},
                {"k": None, "n": None, "words": ["hi", "bye"], "new": False},
                {"k": "b", "n": 1, "words": ["hi", "on"], "new": False},
            ]
        )
    )
    kept = {(row["k"], row["n"]): row["words"] for row in run.read_state("visits").to_pylist()}
    assert kept == {("a", 1): ["again"], ("b", 1): ["hi", "on"], ("b", 2): ["on"]}
    assert run.epochs()[-1].state_rows == 3


TABLES = {
    "last": ms.table("v bigint, at timestamp"),
    "history": ms.table("v bigint, at timestamp", "list", range_column="at"),
}


def keep_an_hour(
    rows: pl.DataFrame, state: Mapping[str, pl.DataFrame]
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame | ms.TableUpdate]]:
    """The newest value of each key, and all values of the last hour. Rows with the value 0 are late: no time passes."""
    events = rows.select("k", "v", "at")
    newest = pl.concat([state["last"], events]).sort("at").group_by("k", maintain_order=True).last()
    history = pl.concat([state["history"], events])
    counts = history.group_by("k").agg(n=pl.len())
    on_time = events.filter(pl.col("v") > 0)["at"]
    bound = on_time.max() - timedelta(hours=1) if len(on_time) else None  # type: ignore[operator]
    return counts.join(newest, on="k", nulls_equal=True), {
        "last": newest,
        "history": ms.TableUpdate(append=events, delete_below=bound),
    }


def test_several_tables_with_appends_and_deletes_by_range(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    at = [datetime(2024, 5, 1, 12, minute, tzinfo=UTC) for minute in range(60)]
    later = [moment + timedelta(hours=1) for moment in at]
    events, sink = inbox("k string, v bigint, at timestamp"), ms.sinks.memory()
    events.add(("a", 1, at[0]), ("b", 2, at[10]), ("a", 3, at[20]))
    events.add(("a", 4, at[40]), ("c", 5, at[30]))
    events.add(("b", 6, later[15]))
    events.add(("c", 7, later[25]), ("a", 8, later[25]), ("b", 9, later[25]))
    events.add(("d", 0, at[5]), ("b", 0, at[6]))
    events.add(("d", 0, at[7]), ("b", 0, at[8]))
    events.add(("e", 10, later[40]))
    step = (
        events.source()
        .key_by("k")
        .stateful(
            "recent",
            keep_an_hour,
            state=TABLES,
            output="k string, n bigint, v bigint, at timestamp",
            parallelism=1,
        )
    )
    run = run_available(step.sink("out", sink), spark, tmp_path / "chk")
    counts = {
        epoch: {row["k"]: (row["n"], row["v"]) for row in table.to_pylist()} for epoch, table in sink.epochs.items()
    }
    assert counts == {
        0: {"a": (2, 3), "b": (1, 2)},
        1: {"a": (3, 4), "c": (1, 5)},
        # Below 12:15 is gone after this epoch, below 12:25 after the next one.
        2: {"b": (2, 6)},
        3: {"c": (2, 7), "a": (3, 8), "b": (2, 9)},
        # What comes later stays, however old it is, until the next bound.
        4: {"d": (1, 0), "b": (3, 9)},
        5: {"d": (2, 0), "b": (4, 9)},
        6: {"e": (1, 10)},
    }
    histories = [
        sorted(run.read_state("recent", "history", epoch)["v"].to_pylist()) for epoch in range(run.last_epoch + 1)
    ]
    assert histories == [
        [1, 2, 3],
        [1, 2, 3, 4, 5],
        [3, 4, 5, 6],
        [4, 5, 6, 7, 8, 9],
        [0, 0, 4, 5, 6, 7, 8, 9],
        [0, 0, 0, 0, 4, 5, 6, 7, 8, 9],
        [4, 6, 7, 8, 9, 10],
    ]
    newest = {row["k"]: row["v"] for row in run.read_state("recent", "last").to_pylist()}
    assert newest == {"a": 8, "b": 9, "c": 7, "d": 0, "e": 10}


def last_two(rows: pa.Table, state: dict[str, pa.Table]) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The last two values of each key, by replacing its rows; a value of -1 forgets the key."""
    both = pa.concat_tables([state["values"], rows.select(["k", "v"])])
    by_key: dict[Any, list[int]] = {}
    for row in both.to_pylist():
        by_key.setdefault(row["k"], []).append(row["v"])
    kept = [{"k": k, "v": v} for k, values in by_key.items() if values[-1] != -1 for v in values[-2:]]
    table = pa.Table.from_pylist(kept, both.schema)
    return table, {"values": table}


def test_a_list_table_replaced_key_by_key(spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]) -> None:
    events, sink = inbox("k string, v int"), ms.sinks.memory()
    events.add(("a", 1), ("a", 2), ("a", 3), ("b", 1), (None, 9))
    events.add(("a", 4), ("c", 1))
    events.add(("b", 2), ("a", -1))
    events.add(("a", 5), ("b", 3))
    step = (
        events.source()
        .key_by("k")
        .stateful("two", last_two, state={"values": ms.table("v int", "list")}, output="k string, v int")
    )
    run = run_available(step.sink("out", sink), spark, tmp_path / "chk")
    kept: dict[Any, list[int]] = {}
    for row in run.read_state("two").to_pylist():
        kept.setdefault(row["k"], []).append(row["v"])
    assert kept == {"a": [5], "b": [2, 3], "c": [1], None: [9]}
    assert [report.state_rows for report in run.epochs()] == [4, 5, 4, 5]
    assert sorted((row["k"], row["v"]) for row in sink.epochs[3].to_pylist()) == [("a", 5), ("b", 2), ("b", 3)]


def keep_unless_zero(rows: pd.DataFrame, state: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    newest = rows.drop_duplicates("k", keep="last")[["k", "v"]]
    return state, newest[newest.v != 0]


def test_a_key_left_out_of_the_new_state_is_forgotten(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events, sink = inbox("k string, v int"), ms.sinks.memory()
    events.add(("a", 1), ("b", 1), ("c", 1))
    events.add(("a", 0), ("b", 2))
    events.add(("a", 3), ("b", 0), ("d", 0))
    step = events.source().key_by("k").stateful("newest", keep_unless_zero, state="v int", output="k string, v int")
    run = run_available(step.sink("out", sink), spark, tmp_path / "chk")
    # The output is the state each epoch found.
    found = {epoch: sorted(map(tuple, (r.values() for r in table.to_pylist()))) for epoch, table in sink.epochs.items()}
    assert found == {1: [("a", 1), ("b", 1)], 2: [("b", 2)]}
    states = [{row["k"]: row["v"] for row in run.read_state("newest", epoch=epoch).to_pylist()} for epoch in range(3)]
    assert states == [{"a": 1, "b": 1, "c": 1}, {"b": 2, "c": 1}, {"a": 3, "c": 1}]
    assert [report.state_rows for report in run.epochs()] == [3, 2, 2]


def test_an_epoch_without_rows_does_not_call_the_function(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events, sink = inbox("k string, v bigint"), ms.sinks.memory()

    def must_have_rows(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        assert rows.num_rows
        return functions.with_pyarrow(rows, state)

    events.add(("a", 1))
    events.add()
    events.add(("a", 2))
    step = events.source().key_by("k").stateful("sum", must_have_rows, state="s bigint", output=functions.OUTPUT)
    run = run_available(step.sink("out", sink), spark, tmp_path / "chk")
    assert run.last_epoch == 2
    assert [row["s"] for row in sink.to_pylist()] == [1, 3]
    assert sorted(sink.epochs) == [0, 2]


EVERYTHING = (
    "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double, s string, x binary, day date,"
    " at timestamp, local timestamp_ntz, dec decimal(38,18), span interval day to second, li array<int>,"
    " st struct<a: int, b: struct<c: string>>, deep array<struct<m: array<string>, t: timestamp>>, m map<string, int>"
)
MOMENT = datetime(2024, 10, 27, 0, 30, 0, 123456, tzinfo=UTC)
FILLED: tuple[Any, ...] = (
    *(True, -128, -32768, -(2**31), 2**63 - 1, 1.5, float("inf"), "größe 🦆", b"\x00\xff", date(1, 1, 1)),
    *(MOMENT, datetime(2024, 3, 31, 2, 30), Decimal("12345678901234567890.000000000000000001")),
    *(timedelta(days=-3, microseconds=1), [1, None, 3], {"a": None, "b": {"c": "x"}}),
    *([{"m": ["p", None], "t": MOMENT}, None], [("k", 1), ("l", None)]),
)
EMPTY: tuple[Any, ...] = (None,) * len(FILLED)


def swap_arrow(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    return state, rows


def swap_polars(rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return state, rows


def swap_pandas(rows: pd.DataFrame, state: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    return state, rows


def swap_per_key(key: tuple[int], rows: list[Any], state: Any) -> tuple[list[Any], Any]:
    (row,) = rows
    return [] if state is None else [{"k": key[0], **state}], {n: v for n, v in row.items() if n != "k"}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_state_and_output_of_every_type(
    spark: SparkSession,
    tmp_path: Path,
    inbox: Callable[..., Inbox],
    set_conf: Callable[[str, str], None],
    zone: str,
) -> None:
    """State is what a row was, output is what state was: both come back as they went in, through every library."""
    set_conf("spark.sql.session.timeZone", zone)
    events = inbox(f"k int, {EVERYTHING}")
    for _ in range(2):
        events.add((1, *FILLED), (2, *EMPTY))
    # Polars has no maps, and pandas none that come back.
    shapes: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
        "arrow": (swap_arrow, ()),
        "polars": (swap_polars, ("m",)),
        "pandas": (swap_pandas, ("m",)),
        "per-key": (swap_per_key, ()),
    }
    source, sinks = events.source(), {name: ms.sinks.memory() for name in shapes}
    flows = []
    for name, (function, dropped) in shapes.items():
        schema = events.batch(spark).drop("k", *dropped).schema
        keyed = source.transform(f"{name}-rows", _without(dropped)).key_by("k")
        per_key = name == "per-key"
        make = keyed.stateful_per_key if per_key else keyed.stateful
        output = StructType([StructField("k", IntegerType()), *schema])
        flows.append(make(name, function, state=schema, output=output).sink(f"{name}-out", sinks[name]))
    run = run_available(ms.pipeline(*flows), spark, tmp_path / "chk")
    for name, (_, dropped) in shapes.items():
        expected = canonical(pq.read_table(events.directory / "00000.parquet").drop_columns(list(dropped)))
        assert canonical(sinks[name].epochs[1]) == expected, name
        assert canonical(run.read_state(name)) == expected, name


def _without(dropped: tuple[str, ...]) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.drop(*dropped)


KEYS = pa.schema([("k", pa.string())])
VALUE = TableSpec("value", KEYS, pa.schema([("v", pa.int64())]))
LIST = TableSpec("list", KEYS, pa.schema([("v", pa.int64())]), TableKind.LIST)
RANGED = TableSpec("ranged", KEYS, pa.schema([("v", pa.int64())]), TableKind.LIST, "v")


def called(new_state: Any, *, output: Any = None) -> None:
    """Run a function that gives back this state, on two rows with the keys a and b, without Spark."""
    specs = (VALUE, LIST, RANGED)
    rows = pa.table({"k": ["a", "b"], "v": [1, 2]})
    groups = group_rows(np.array([1, 2]), rows.select(["k"]))
    snapshot = PartitionSnapshot(open_store("/nowhere"), {spec.name: TableState(spec) for spec in specs}, WHOLE)
    given = rows if output is None else output
    function = UserFunction("step", lambda rows, state: (given, new_state), ("k",), specs, rows.schema, named=True)
    function.run(rows, groups, snapshot)


A = pa.table({"k": ["a"], "v": [1]})


@pytest.mark.parametrize(
    "new_state",
    [
        {},
        {"value": None},
        {"value": A, "list": A, "ranged": ms.TableUpdate(append=A, delete_below=0)},
        {"value": pl.from_arrow(A), "list": A.to_pandas(), "ranged": ms.TableUpdate()},
        {"value": pa.table({"v": [1, 2], "k": ["b", "a"]}), "list": pa.concat_tables([A, A])},
        {"value": pa.table({"k": ["a"], "v": pa.array([1], pa.int8())})},
        {"list": A.slice(0, 0), "ranged": ms.TableUpdate(rows=A, delete_below=7)},
    ],
)
def test_new_state_a_function_may_give(new_state: Any) -> None:
    called(new_state)


@pytest.mark.parametrize(
    ("new_state", "complaint"),
    [
        ({"value": pa.table({"k": ["c"], "v": [1]})}, r"state for the key \{'k': 'c'\}"),
        ({"list": ms.TableUpdate(append=pa.table({"k": [None], "v": [1]}))}, r"state for the key \{'k': None\}"),
        ({"value": pa.concat_tables([A, A])}, r"several for the key \{'k': 'a'\}"),
        ({"other": A}, "the tables value, list, ranged"),
        (A, "a dict with the tables"),
        ({"value": A.drop_columns("v")}, "the new state of table 'value' with the columns"),
        ({"value": A.append_column("w", pa.array([1]))}, "the new state of table 'value' with the columns"),
        ({"value": pa.table({"k": ["a"], "v": ["x"]})}, "the new state of table 'value' with the columns"),
        ({"value": {"k": ["a"], "v": [1]}}, "the new state of table 'value' with the columns"),
        ({"value": ms.TableUpdate(append=A)}, "`append` alone, on a list table"),
        ({"list": ms.TableUpdate(append=A, rows=A)}, "`append` alone, on a list table"),
        ({"list": ms.TableUpdate(delete_below=3)}, "`delete_below` only for a table with a range column"),
        ({"ranged": ms.TableUpdate(delete_below="x")}, "`delete_below` of type int64"),
    ],
)
def test_new_state_a_function_must_not_give(new_state: Any, complaint: str) -> None:
    with pytest.raises(UserFunctionError, match=f"(?s)WRONG_RESULT.*<lambda> .*test_stateful.*'step'.*{complaint}"):
        called(new_state)


@pytest.mark.parametrize("output", [3, A.drop_columns("v"), pa.table({"k": [1], "v": ["x"]})])
def test_output_a_function_must_not_give(output: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"its output with the columns \(k string, v int64\)"):
        called({}, output=output)


def strange_state(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    return rows, pa.table({"k": ["stranger"], "n": [1]})


def test_state_for_a_key_that_is_not_in_the_epoch_ends_the_run(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox]
) -> None:
    events = inbox("k string")
    events.add(("a",))
    step = events.source().key_by("k").stateful("strange", strange_state, state="n bigint", output="k string")
    with pytest.raises(UserFunctionError, match=r"(?s)strange_state.*'strange'.*stranger") as raised:
        run_available(step.sink("out", ms.sinks.noop()), spark, tmp_path / "chk")
    assert raised.value.error_class == "WRONG_RESULT"
    assert raised.value.hint is not None


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        ({"function": 3}, "NOT_A_FUNCTION"),
        ({"state": "not a schema at all"}, "(?s)BAD_SCHEMA.*state.*'step'"),
        ({"output": "bigint"}, "(?s)BAD_SCHEMA.*output.*'step'"),
        ({"state": "k string, n int"}, "DUPLICATE_COLUMN.*k"),
        ({"state": {"t": ms.table("n int", range_column="m")}}, "UNKNOWN_KEY_COLUMN.*m"),
        ({"parallelism": 0}, "BAD_PARALLELISM"),
    ],
)
def test_steps_that_do_not_make_sense(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], made: dict[str, Any], complaint: str
) -> None:
    options = {"function": swap_arrow, "state": "n int", "output": "k string", **made}
    with pytest.raises(GraphError, match=complaint):
        inbox("k string").source().key_by("k").stateful("step", **options).sink("out", ms.sinks.noop()).start(
            spark, str(tmp_path / "chk")
        )
