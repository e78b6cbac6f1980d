"""Functions and graphs that are wrong: an error that names function, file and line, and nothing lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import midstream as ms
from midstream.errors import MidstreamError
from tests.engine.harness import Inbox
from tests.recovery.summing import SCHEMA, Case, Step, summed

# Workers get the functions below by value and need not be able to import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def doubled(rows: pa.Table, state: pa.Table) -> Any:
    """What the user functions below should have been."""
    found = {row["k"]: row["total"] for row in state.to_pylist()}
    for row in rows.to_pylist():
        found[row["k"]] = found.get(row["k"], 0) + row["v"]
    table = pa.table({"k": pa.array(list(found), pa.string()), "total": pa.array(list(found.values()), pa.int64())})
    return table, table


def stateful(function: Callable[..., Any]) -> Step:
    return lambda s: s.key_by("k").stateful(
        "sums", function, state="total bigint", output="k string, total bigint", parallelism=1
    )


def raises(rows: pa.Table, state: pa.Table) -> Any:
    raise LookupError("no rate\n\nfor this currency")


def raises_deep_inside(rows: pa.Table, state: pa.Table) -> Any:
    return rows.column("no such column"), state


def gives_nothing(rows: pa.Table, state: pa.Table) -> Any:
    return None


def gives_only_output(rows: pa.Table, state: pa.Table) -> Any:
    return rows


def gives_other_columns(rows: pa.Table, state: pa.Table) -> Any:
    return rows, state


def gives_other_types(rows: pa.Table, state: pa.Table) -> Any:
    return pa.table({"k": ["a"], "total": ["many"]}), state


def keeps_other_columns(rows: pa.Table, state: pa.Table) -> Any:
    return pa.table({"k": pa.array([], pa.string()), "total": pa.array([], pa.int64())}), rows


def keeps_foreign_keys(rows: pa.Table, state: pa.Table) -> Any:
    empty = pa.table({"k": pa.array([], pa.string()), "total": pa.array([], pa.int64())})
    return empty, pa.table({"k": ["stranger"], "total": [1]})


def keeps_keys_twice(rows: pa.Table, state: pa.Table) -> Any:
    empty = pa.table({"k": pa.array([], pa.string()), "total": pa.array([], pa.int64())})
    return empty, pa.table({"k": ["a", "a"], "total": [1, 2]})


BAD_FUNCTIONS = {
    raises: ("USER_FUNCTION_FAILED", "LookupError", "no rate\nfor this currency"),
    raises_deep_inside: ("USER_FUNCTION_FAILED", "KeyError", "no such column"),
    gives_nothing: ("WRONG_RESULT", "a pair (output, new_state)", "a NoneType"),
    gives_only_output: ("WRONG_RESULT", "a pair (output, new_state)", "a Table"),
    gives_other_columns: ("WRONG_RESULT", "its output", "(k string, total int64)", "['k', 'v']"),
    gives_other_types: ("WRONG_RESULT", "its output", "(k string, total int64)", "many"),
    keeps_other_columns: ("WRONG_RESULT", "new state", "(k string, total int64)", "['k', 'v']"),
    keeps_foreign_keys: ("WRONG_RESULT", "keys of this epoch only", "stranger"),
    keeps_keys_twice: ("WRONG_RESULT", "one state row a key", "'a'"),
}


class TestUserFunctions:
    def test_functions_that_raise_or_return_the_wrong_thing(self, case: Case) -> None:
        case.run(stateful(doubled))
        case.add_epoch()
        for function, (error_class, *named) in BAD_FUNCTIONS.items():
            line = function.__code__.co_firstlineno
            where = [function.__name__, f"test_bad_functions.py:{line}", "step 'sums'"]
            if error_class == "USER_FUNCTION_FAILED":
                where.append(f"test_bad_functions.py:{line + 1}")
            case.fails(case.flow(stateful(function)), error_class, *where, *named)
        case.run(stateful(doubled))
        case.check()

    def test_a_function_of_one_key_that_raises(self, case: Case) -> None:
        def per_key(function: Callable[..., Any]) -> Step:
            return lambda s: s.key_by("k").stateful_per_key(
                "sums", function, state="total bigint", output="k string, total bigint"
            )

        def adds(key: tuple[Any, ...], rows: list[dict[str, Any]], state: dict[str, Any] | None) -> Any:
            total = (state["total"] if state else 0) + sum(row["v"] for row in rows)
            return [{"k": key[0], "total": total}], {"total": total}

        def stumbles(key: tuple[Any, ...], rows: list[dict[str, Any]], state: dict[str, Any] | None) -> Any:
            return rows[1000], state

        case.run(per_key(adds))
        case.add_epoch()
        line = stumbles.__code__.co_firstlineno
        case.fails(
            case.flow(per_key(stumbles)), "USER_FUNCTION_FAILED", "IndexError", f"test_bad_functions.py:{line + 1}"
        )
        case.run(per_key(adds))
        case.check()

    def test_a_transform_that_raises_in_an_epoch(self, case: Case) -> None:
        """When the pipeline is checked it sees no rows, and does not raise yet."""
        case.run()
        case.add_epoch()

        def stumbles(df: DataFrame) -> DataFrame:
            if not df.isEmpty():
                raise ArithmeticError("more rows than I can take")
            return df

        line = stumbles.__code__.co_firstlineno
        case.fails(
            case.flow(lambda s: s.transform("stumbles", stumbles), summed),
            "STEP_NOT_VALID",
            "Step 'stumbles'",
            "ArithmeticError: more rows than I can take",
            f"test_bad_functions.py:{line + 2}",
        )
        case.run()
        case.check()

    def test_an_expression_that_fails_on_a_row(self, case: Case) -> None:
        """Spark finds it while the epoch runs, and its own message is passed on."""
        case.run()
        case.add_epoch()
        bad = case.flow(lambda s: s.sql("cast", "SELECT k, CAST(concat(k, 'x') AS BIGINT) AS v FROM input"), summed)
        error = case.fails(bad, "EPOCH_FAILED", "CAST_INVALID_INPUT")
        assert "start again" in str(error.hint)
        case.run()
        case.check()

    def test_a_callback_that_raises(self, case: Case) -> None:
        run = case.start()
        run.on_epoch(lambda report: (_ for _ in ()).throw(OSError("cannot page anybody")))
        with pytest.raises(MidstreamError) as raised:
            run.process_available()
        assert raised.value.error_class == "EPOCH_FAILED"
        assert "OSError: cannot page anybody" in raised.value.message
        case.add_epoch()
        case.run()
        case.check()


class TestGraph:
    """Pipelines that cannot be started; nothing is made for them."""

    def test_steps_that_cannot_be_planned(self, case: Case) -> None:
        def nothing(df: DataFrame) -> Any:
            return None

        def raises(df: DataFrame) -> DataFrame:
            raise RuntimeError("at once")

        line = raises.__code__.co_firstlineno + 1
        cases: list[tuple[ms.Pipeline, str, tuple[str, ...]]] = [
            (
                case.flow(lambda s: s.transform("t", lambda df: df.select("nope")), summed),
                "STEP_NOT_VALID",
                ("'t'", "nope"),
            ),
            (case.flow(lambda s: s.transform("t", nothing), summed), "STEP_NOT_VALID", ("'t'", "NoneType")),
            (
                case.flow(lambda s: s.transform("t", raises), summed),
                "STEP_NOT_VALID",
                ("'t'", "RuntimeError: at once", f"test_bad_functions.py:{line}"),
            ),
            (case.flow(lambda s: s.sql("q", "SELEC k FROM input")), "STEP_NOT_VALID", ("'q'", "SELEC")),
            (case.flow(lambda s: s.key_by("kk").aggregate("a", n=F.count("*"))), "UNKNOWN_KEY_COLUMN", ("'a'", "'kk'")),
            (
                case.flow(lambda s: s.key_by("k").aggregate("a", n=F.sum("vv"))),
                "AGGREGATE_NOT_VALID",
                ("'n'", "vv"),
            ),
            (
                case.flow(events=ms.source("s", lambda spark: spark.range(3).selectExpr("'x' AS k", "id AS v"))),
                "NOT_A_STREAM",
                ("'s'",),
            ),
            (
                case.flow(events=ms.source("s", lambda spark: spark.readStream.format("nope").load())),
                "STEP_NOT_VALID",
                ("'s'", "nope"),
            ),
            (
                case.flow(events=ms.source("s", lambda spark: {}["schema"])),
                "STEP_NOT_VALID",
                ("'s'", "KeyError", "test_bad_functions.py"),
            ),
        ]
        for flow, error_class, named in cases:
            case.fails(flow, error_class, *named)
        assert not case.checkpoint.exists()
        assert not (case.root / "out").exists()

    def test_a_key_that_is_almost_right(self, case: Case) -> None:
        near = ms.source("s", lambda spark: spark.readStream.format("rate").load().selectExpr("value AS customer"))
        flow = near.key_by("custmer").aggregate("a", n=F.count("*")).sink("out", ms.sinks.noop())
        assert case.fails(flow, "UNKNOWN_KEY_COLUMN", "'custmer'").hint == "did you mean 'customer'?"

    @pytest.mark.parametrize(
        ("make", "error_class", "named"),
        [
            (lambda s: s.transform("two words", lambda df: df), "BAD_STEP_ID", "'two words'"),
            (lambda s: s.transform("", lambda df: df), "BAD_STEP_ID", "''"),
            (lambda s: s.transform("../up", lambda df: df), "BAD_STEP_ID", "'../up'"),
            (lambda s: summed(s).key_by("k").aggregate("sums", n=F.count("*")), "DUPLICATE_STEP_ID", "'sums'"),
            (lambda s: s.key_by(), "BAD_KEY", "()"),
            (lambda s: s.key_by("k").aggregate("a", n="count(*)", parallelism=0), "BAD_PARALLELISM", "'a'"),
            (lambda s: s.key_by("k").aggregate("a", n="count(*)", parallelism=2.5), "BAD_PARALLELISM", "2.5"),
            (lambda s: s.key_by("k").aggregate("a"), "NO_AGGREGATES", "'a'"),
            (lambda s: s.key_by("k").aggregate("a", k="count(*)"), "DUPLICATE_COLUMN", "k"),
            (lambda s: s.key_by("k").stateful("a", "f", state="n int", output="n int"), "NOT_A_FUNCTION", "'f'"),
        ],
    )
    def test_a_graph_that_cannot_be(self, make: Any, error_class: str, named: str, tmp_path: Path) -> None:
        with pytest.raises(MidstreamError) as raised:
            make(Inbox(tmp_path / "in", SCHEMA).source()).sink("out", ms.sinks.noop())
        assert raised.value.error_class == error_class
        assert named in raised.value.message
        assert raised.value.hint

    def test_a_query_spark_does_not_start(self, case: Case) -> None:
        case.fails(case.flow(), "QUERY_NOT_STARTED", "sometimes", trigger={"sometimes": True})
        case.fails(case.flow(), "QUERY_NOT_STARTED", "soon", trigger={"processingTime": "soon"})
        other = case.flow(lambda s: s)
        run = other.start(case.spark, str(case.root / "first"), name="taken")
        case.fails(summed(case.inbox.source()).sink("out", ms.sinks.noop()), "QUERY_NOT_STARTED", "taken", name="taken")
        run.stop()
