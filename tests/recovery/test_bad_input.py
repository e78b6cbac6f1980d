"""Bad input of every kind: a clear error that names the thing, and nothing lost once it is put right."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.run import Run
from midstream.errors import CheckpointError, MidstreamError
from midstream.state.compaction import CompactionPolicy
from midstream.state.compactor import Compactor
from midstream.state.ledger import committed_epochs, read_manifest
from midstream.state.manifest import decode_manifest, manifest_path
from midstream.state.query import read_table
from midstream.state.store import open_store
from tests.engine.harness import Inbox
from tests.recovery.processes import wait_until
from tests.servers import S3Server, free_ports

# Workers get the functions below by value and need not be able to import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "k string, v bigint"
KEYS = [None, *"abcdefgh"]

Step = Callable[[ms.Stream], ms.Stream]


@dataclass(frozen=True)
class Case:
    """A pipeline that sums by key, its input, and what must come out of it."""

    root: Path
    spark: SparkSession

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.root / "in", SCHEMA)

    @property
    def checkpoint(self) -> Path:
        return self.root / "chk"

    def add_epoch(self) -> None:
        number = len(list((self.root / "in").glob("*.parquet")))
        self.inbox.add(*((key, 100 * number + place) for place, key in enumerate(KEYS)))

    def flow(self, *steps: Step, events: ms.Stream | None = None) -> ms.Pipeline:
        stream = events or self.inbox.source()
        for step in steps or (summed,):
            stream = step(stream)
        return stream.sink("out", ms.sinks.parquet(self.root / "out"))

    def start(self, *steps: Step, **options: Any) -> Run:
        return self.flow(*steps).start(self.spark, str(self.checkpoint), **options)

    def run(self, *steps: Step) -> None:
        run = self.start(*steps)
        run.process_available()
        run.stop()

    def fails(self, flow: ms.Pipeline, error_class: str, *named: str, **options: Any) -> MidstreamError:
        """Run until it fails, at the start or later: the error is of the class, names these things and has a hint."""
        with pytest.raises(MidstreamError) as raised:
            self._until_failure(flow, options)
        error = raised.value
        assert error.error_class == error_class, error
        for name in named:
            assert name in error.message, error
        assert error.hint, error
        assert "\tat " not in str(error), "the JVM's stack helps nobody"
        return error

    def _until_failure(self, flow: ms.Pipeline, options: dict[str, Any]) -> None:
        """Raises the same error however it is asked for."""
        run = flow.start(self.spark, options.pop("checkpoint", str(self.checkpoint)), **options)
        with pytest.raises(MidstreamError) as waiting:
            run.process_available()
        assert run.status == "failed"
        assert run.exception is waiting.value
        with pytest.raises(MidstreamError) as ended:
            run.await_termination()
        assert ended.value is waiting.value
        raise waiting.value

    def check(self) -> None:
        """State is what the input says, and every epoch is in the output once."""
        files = len(list((self.root / "in").glob("*.parquet")))
        sums = {key: sum(100 * number + place for number in range(files)) for place, key in enumerate(KEYS)}
        store = open_store(str(self.checkpoint))
        last = read_manifest(store, committed_epochs(store)[-1])
        table = read_table(store, last, "sums")
        assert {row["k"]: list(row.values())[-1] for row in table.to_pylist()} == sums
        assert {folder.name for folder in (self.root / "out").iterdir()} == {f"epoch={n}" for n in range(files)}


def summed(stream: ms.Stream) -> ms.Stream:
    return stream.key_by("k").aggregate("sums", total=F.sum("v"))


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession) -> Case:
    case = Case(tmp_path, spark)
    case.add_epoch()
    return case


def use_fresh_workers(spark: SparkSession) -> None:
    """Have the next tasks run in new Python processes, which have no segment open yet."""
    spark.sparkContext.environment["MIDSTREAM_TEST"] = uuid.uuid4().hex


class TestState:
    """Segments that are damaged or missing."""

    @staticmethod
    def flip(file: Path, place: int) -> None:
        data = bytearray(file.read_bytes())
        data[place] ^= 0x10
        file.write_bytes(data)

    @pytest.mark.parametrize("damage", ["block", "index", "trailer", "truncated", "empty", "missing"])
    def test_a_damaged_segment(self, damage: str, case: Case) -> None:
        case.add_epoch()
        case.run()
        segment = max((case.checkpoint / "segments" / "sums").rglob("*.seg"))
        kept = case.root / "kept"
        shutil.copy(segment, kept)
        body = segment.read_bytes()
        if damage == "block":
            # The middle of the only block: behind the schema, before the index.
            self.flip(segment, body.index(b'{"format"') - 100)
        elif damage == "index":
            self.flip(segment, len(body) - 60)
        elif damage == "trailer":
            self.flip(segment, len(body) - 2)
        elif damage == "missing":
            segment.unlink()
        else:
            os.truncate(segment, len(body) // 2 if damage == "truncated" else 0)
        case.add_epoch()
        expected = "MISSING_SEGMENT" if damage == "missing" else "DAMAGED_SEGMENT"
        case.fails(case.flow(), expected, str(segment.relative_to(case.checkpoint)), str(case.checkpoint))

        # The same processes must see it when the file is back.
        shutil.copy(kept, segment)
        case.run()
        case.check()

    def test_a_segment_found_damaged_by_compaction(self, case: Case) -> None:
        """It is told by the next commit, which would otherwise build on it for ever."""
        case.add_epoch()
        case.run()
        store = open_store(str(case.checkpoint))
        steps = read_manifest(store, 1).steps
        path = steps["sums"].tables["main"].segments[0].path
        self.flip(case.checkpoint / path, -70)
        compactor = Compactor(store, {"sums": CompactionPolicy(deltas=2)}, generation=1)
        compactor.offer(steps)
        wait_until(lambda: compactor.idle, 60, "the merge fails")
        with pytest.raises(CheckpointError) as raised:
            compactor.apply(steps)
        compactor.close()
        assert raised.value.error_class == "DAMAGED_SEGMENT"
        assert path in raised.value.message


class TestCheckpointFiles:
    """The small files of a checkpoint."""

    @pytest.mark.parametrize("file", ["manifests/000000000000.json", "checkpoint.json", "plans/000001.json"])
    def test_a_newer_format(self, file: str, case: Case) -> None:
        case.run()
        target = case.checkpoint / file
        before = target.read_bytes()
        target.write_text(json.dumps({**json.loads(before), "format": 99, "shape": "unheard of"}))
        case.add_epoch()
        error = case.fails(case.flow(), "NEWER_FORMAT", file, "99")
        assert "upgrade" in str(error.hint)
        target.write_bytes(before)
        case.run()
        case.check()

    @pytest.mark.parametrize(
        ("file", "error_class"),
        [
            ("manifests/000000000000.json", "DAMAGED_MANIFEST"),
            ("checkpoint.json", "DAMAGED_CHECKPOINT"),
            ("plans/000001.json", "DAMAGED_CHECKPOINT"),
        ],
    )
    def test_garbage(self, file: str, error_class: str, case: Case) -> None:
        case.run()
        target = case.checkpoint / file
        before = target.read_bytes()
        case.add_epoch()
        for garbage in (b"", b"\x00\xff garbage", before[: len(before) // 2], b"[]", b"{}", b'{"format": "one"}'):
            target.write_bytes(garbage)
            case.fails(case.flow(), error_class, file)
        target.write_bytes(before)
        case.run()
        case.check()

    def test_any_change_of_a_manifest_is_an_error_of_ours(self, case: Case) -> None:
        """Whatever is missing or of another type: never a raw KeyError or worse."""
        case.run()
        body = json.loads((case.checkpoint / manifest_path(0)).read_text())
        paths = list(_paths(body))
        assert len(paths) > 60
        for path in paths:
            for value in (None, "text", -1, [], {}, _GONE):
                changed = json.dumps(_changed(body, path, value)).encode()
                with suppress(CheckpointError):
                    decode_manifest(changed, "manifests/0.json")

    def test_strangers_in_the_folders_are_ignored(self, case: Case) -> None:
        """Network file systems and copying tools leave files of their own."""
        case.run()
        for name in (
            "manifests/.nfs000001",
            "manifests/000000000009.json.partial",
            "drivers/.DS_Store",
            "plans/README",
        ):
            (case.checkpoint / name).write_text("not ours")
        case.add_epoch()
        case.run()
        case.check()

    @pytest.mark.parametrize("epochs", [1, 3])
    def test_sparks_log_is_deleted(self, epochs: int, case: Case) -> None:
        """With one epoch Spark would ask for the same number again, for other rows: they would be taken for done."""
        for _ in range(epochs - 1):
            case.add_epoch()
        case.run()
        log, kept = case.checkpoint / "spark", case.root / "kept"
        shutil.move(log, kept)
        case.add_epoch()
        case.fails(case.flow(), "EPOCH_GAP", f"last committed epoch is {epochs - 1}", str(log))
        shutil.rmtree(log, ignore_errors=True)
        shutil.move(kept, log)
        case.run()
        case.check()

    def test_sparks_log_of_another_checkpoint(self, case: Case) -> None:
        case.run()
        other = Case(case.root / "other", case.spark)
        other.add_epoch()
        other.run()
        log, kept = case.checkpoint / "spark", case.root / "kept"
        shutil.move(log, kept)
        shutil.copytree(other.checkpoint / "spark", log)
        case.add_epoch()
        case.fails(case.flow(), "EPOCH_GAP", "other offsets", str(log))
        shutil.rmtree(log)
        shutil.move(kept, log)
        case.run()
        case.check()

    def test_manifests_are_deleted(self, case: Case) -> None:
        case.add_epoch()
        case.run()
        manifests, kept = case.checkpoint / "manifests", case.root / "kept"
        shutil.move(manifests, kept)
        case.add_epoch()
        # The sink is asked first, and is ahead of what seems to be a new checkpoint.
        case.fails(case.flow(), "SINK_AHEAD_OF_CHECKPOINT", "epoch 1")
        nowhere = summed(case.inbox.source()).sink("out", ms.sinks.noop())
        case.fails(nowhere, "EPOCH_GAP", "has come to epoch 1")
        shutil.rmtree(manifests, ignore_errors=True)
        shutil.move(kept, manifests)
        case.run()
        case.check()


class TestFit:
    """A pipeline that does not fit its checkpoint."""

    @pytest.mark.parametrize(
        ("schema", "told"),
        [
            ("k string, v bigint, w int", "'w' is new"),
            ("k string", "'v' is gone"),
            ("k string, v double", "'v' was int64, is double"),
        ],
    )
    def test_the_schema_of_a_source_has_changed(self, schema: str, told: str, case: Case) -> None:
        case.run()
        case.add_epoch()
        changed = Inbox(case.root / "in", schema).source()
        counted = changed.key_by("k").aggregate("sums", total=F.sum(F.lit(1)))
        flow = counted.sink("out", ms.sinks.parquet(case.root / "out"))
        case.fails(flow, "SOURCE_SCHEMA_CHANGED", "source 'events'", told)
        case.run()
        case.check()

    def test_the_checkpoint_of_another_pipeline(self, case: Case) -> None:
        case.run()
        case.add_epoch()
        renamed = summed(case.inbox.source("orders")).sink("out", ms.sinks.parquet(case.root / "out"))
        case.fails(renamed, "CHECKPOINT_OF_ANOTHER_PIPELINE", "sources events", "sources orders")
        more = ms.pipeline(case.flow(), case.inbox.source("orders").sink("more", ms.sinks.noop()))
        case.fails(more, "CHECKPOINT_OF_ANOTHER_PIPELINE", "sources events, orders")
        other = case.flow(lambda stream: stream.key_by("k").aggregate("counts", n=F.count("*")))
        case.fails(other, "CHECKPOINT_OF_ANOTHER_PIPELINE", "keyed steps sums", "keyed steps counts")
        stateless = case.flow(lambda stream: stream)
        case.fails(stateless, "CHECKPOINT_OF_ANOTHER_PIPELINE", "keyed steps sums", "keyed steps none")
        case.run()
        case.check()

    def test_state_of_another_shape(self, case: Case) -> None:
        case.run()
        case.add_epoch()

        def kept(state: Any) -> ms.Pipeline:
            def function(rows: pa.Table, state: pa.Table) -> Any:
                raise AssertionError("never called")

            return case.flow(lambda s: s.key_by("k").stateful("sums", function, state=state, output="k string"))

        stateful = kept("total bigint")
        case.fails(stateful, "STATE_SCHEMA_CHANGED", "step 'sums'", "['state']", "['main']")
        for flow, told in (
            (case.flow(lambda s: s.key_by("k").aggregate("sums", total=F.avg("v"))), "is new"),
            (case.flow(lambda s: s.key_by("v").aggregate("sums", total=F.sum("v"))), "'k' is gone"),
            (case.flow(lambda s: s.sql("cast", "SELECT k, DOUBLE(v) AS v FROM input"), summed), "was int64, is double"),
        ):
            case.fails(flow, "STATE_SCHEMA_CHANGED", "step 'sums'", told)
        case.run()
        case.check()

    def test_a_table_of_another_kind(self, case: Case) -> None:
        """A value table read as a list table would give every old row of a key."""

        def keep(rows: pa.Table, state: dict[str, pa.Table]) -> Any:
            return rows.select(["k"]), {"t": rows.select(["k", "v"])}

        def flow(**options: Any) -> ms.Pipeline:
            state = {"t": ms.table("v bigint", **options)}
            return case.flow(lambda s: s.key_by("k").stateful("sums", keep, state=state, output="k string"))

        run = flow().start(case.spark, str(case.checkpoint))
        run.process_available()
        run.stop()
        case.fails(flow(kind="list"), "STATE_SCHEMA_CHANGED", "list table, was a value table")
        case.fails(flow(range_column="v"), "STATE_SCHEMA_CHANGED", "range column of 't' is v, was None")

    def test_sources_in_another_order(self, case: Case, tmp_path: Path) -> None:
        """Spark knows sources by position. A pipeline written down in another order is still the same pipeline."""
        left, right = (Inbox(tmp_path / name, SCHEMA) for name in ("left", "right"))
        sinks = {name: ms.sinks.memory() for name in ("left", "right")}

        def run(*order: str) -> None:
            inboxes = {"left": left, "right": right}
            flows = [inboxes[name].source(name).sink(f"{name}_out", sinks[name]) for name in order]
            run = ms.pipeline(*flows).start(case.spark, str(tmp_path / "sides"))
            run.process_available()
            run.stop()

        left.add(("a", 1))
        left.add(("a", 2))
        right.add(("b", 10))
        run("left", "right")
        left.add(("a", 3))
        right.add(("b", 20))
        right.add(("b", 30))
        run("right", "left")
        assert [row["v"] for row in sinks["left"].to_pylist()] == [1, 2, 3]
        assert [row["v"] for row in sinks["right"].to_pylist()] == [10, 20, 30]


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
            where = [function.__name__, f"test_bad_input.py:{line}", "step 'sums'"]
            if error_class == "USER_FUNCTION_FAILED":
                where.append(f"test_bad_input.py:{line + 1}")
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
        case.fails(case.flow(per_key(stumbles)), "USER_FUNCTION_FAILED", "IndexError", f"test_bad_input.py:{line + 1}")
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
            f"test_bad_input.py:{line + 2}",
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
                ("'t'", "RuntimeError: at once", f"test_bad_input.py:{line}"),
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
                ("'s'", "KeyError", "test_bad_input.py"),
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


class TestStores:
    def test_a_store_below_a_file(self, case: Case) -> None:
        (case.root / "file").write_text("")
        place = str(case.root / "file" / "chk")
        case.fails(case.flow(), "STORE_NOT_WRITABLE", place, checkpoint=place)
        case.run()
        case.check()

    def test_stores_that_do_not_exist(self, case: Case) -> None:
        case.fails(case.flow(), "UNKNOWN_STORE", "gopher", checkpoint="gopher://host/chk")
        case.fails(case.flow(), "UNKNOWN_STORE_OPTION", "fsinc", store_options={"fsinc": "true"})

    def test_an_s3_server_that_does_not_answer(self, case: Case, s3_server: S3Server) -> None:
        (port,) = free_ports(1)
        nobody = {**s3_server.options, "endpoint": f"http://127.0.0.1:{port}", "max_retries": "1"}
        case.fails(
            case.flow(), "STORE_UNREACHABLE", f"127.0.0.1:{port}", checkpoint="s3://bucket/chk", store_options=nobody
        )
        case.fails(
            case.flow(),
            "MISSING_BUCKET",
            "no-such-bucket",
            checkpoint="s3://no-such-bucket/chk",
            store_options=s3_server.options,
        )
        wrong = {**s3_server.options, "secret_access_key": "wrong"}
        url = s3_server.url("bad-input")
        error = case.fails(case.flow(), "STORE_ACCESS_DENIED", url, checkpoint=url, store_options=wrong)
        assert "wrong" not in str(error)

    def test_a_postgres_server_that_does_not_answer(self, case: Case) -> None:
        dsn = f"postgresql://someone:secret@/nowhere?host={case.root}"
        flow = summed(case.inbox.source()).sink("out", ms.sinks.postgres(dsn, "sums"))
        error = case.fails(flow, "SINK_UNREACHABLE", "nowhere", "table sums")
        assert "secret" not in str(error)
        case.run()
        case.check()


class TestSpace:
    """No space left, for real."""

    @staticmethod
    def hoarding(size: int) -> Step:
        """Keeps so many bytes for every key, beside its sum."""

        def hoard(rows: pa.Table, state: pa.Table) -> Any:
            import os

            found = {row["k"]: row["total"] for row in state.to_pylist()}
            for row in rows.to_pylist():
                found[row["k"]] = found.get(row["k"], 0) + row["v"]
            keys = pa.array(list(found), pa.string())
            totals = pa.array(list(found.values()), pa.int64())
            ballast = pa.array([os.urandom(size) for _ in found], pa.binary())
            output = pa.table({"k": keys, "total": totals})
            return output, pa.table({"k": keys, "ballast": ballast, "total": totals})

        return lambda s: s.key_by("k").stateful(
            "sums", hoard, state="ballast binary, total bigint", output="k string, total bigint", parallelism=1
        )

    def test_the_disk_is_full(self, case: Case) -> None:
        disk = case.root / "disk"
        try:
            mounted = tmpfs(disk, "2m")
        except PermissionError as error:
            warnings.warn(f"a disk cannot be mounted here ({error}): a limit of files is used instead", stacklevel=1)
            self.fill_up_to_a_limit(case)
            return
        with mounted:
            full = Case(disk, case.spark)
            full.add_epoch()
            full.run(self.hoarding(50_000))
            for _ in range(5):
                full.add_epoch()
            url = f"file://{disk}"
            error = full.fails(full.flow(self.hoarding(50_000)), "DISK_FULL", url, "No space left on device")
            assert "space" in str(error.hint)
            first = max(committed_epochs(open_store(str(full.checkpoint))))
            assert 1 <= first < 5
            full.fails(full.flow(self.hoarding(50_000)), "DISK_FULL", url)
            assert max(committed_epochs(open_store(str(full.checkpoint)))) == first

            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            full.run(self.hoarding(50_000))
            full.check()

    def test_the_disk_becomes_read_only(self, case: Case) -> None:
        """As the kernel does with a disk that has errors. Spark's own log is mostly the first to notice."""
        disk = case.root / "disk"
        try:
            mounted = tmpfs(disk, "64m")
        except PermissionError as error:
            warnings.warn(f"a disk cannot be mounted here ({error}): a file is put in the way", stacklevel=1)
            self.put_a_file_in_the_way(case)
            return
        with mounted:
            broken = Case(disk, case.spark)
            broken.add_epoch()
            run = broken.start()
            run.process_available()
            broken.add_epoch()
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            with pytest.raises(MidstreamError) as raised:
                run.process_available()
            assert raised.value.error_class == "STORE_NOT_WRITABLE"
            assert f"file://{disk}" in raised.value.message
            assert raised.value.hint
            broken.fails(broken.flow(), "STORE_NOT_WRITABLE", f"file://{disk}")
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            broken.run()
            broken.check()

    def test_a_limit_to_the_size_of_files(self, case: Case) -> None:
        self.fill_up_to_a_limit(case)

    def test_a_file_where_a_folder_should_be(self, case: Case) -> None:
        self.put_a_file_in_the_way(case)

    def fill_up_to_a_limit(self, case: Case) -> None:
        """`ulimit -f` in the worker: the kernel refuses to make a segment larger."""
        small = self.hoarding(10)
        case.run(small)
        case.add_epoch()
        limit = case.root / "limit"
        limit.touch()

        def limited(rows: pa.Table, state: pa.Table) -> Any:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000 if limit.exists() else hard, hard))
            return grown(rows, state)

        grown = self.hoarding(10_000)(case.inbox.source()).step.function  # type: ignore[attr-defined]

        def step(stream: ms.Stream) -> ms.Stream:
            return stream.key_by("k").stateful(
                "sums", limited, state="ballast binary, total bigint", output="k string, total bigint", parallelism=1
            )

        use_fresh_workers(case.spark)
        case.fails(case.flow(step), "STORE_FAILED", f"file://{case.checkpoint}", "File too large")
        limit.unlink()
        case.run(step)
        case.check()
        use_fresh_workers(case.spark)

    def put_a_file_in_the_way(self, case: Case) -> None:
        run = case.start()
        run.process_available()
        shutil.rmtree(case.checkpoint / ".tmp")
        (case.checkpoint / ".tmp").write_text("")
        case.add_epoch()
        with pytest.raises(MidstreamError) as raised:
            run.process_available()
        assert raised.value.error_class == "STORE_NOT_WRITABLE"
        assert f"file://{case.checkpoint}" in raised.value.message
        assert raised.value.hint
        case.fails(case.flow(), "STORE_NOT_WRITABLE", f"file://{case.checkpoint}")
        (case.checkpoint / ".tmp").unlink()
        case.run()
        case.check()


@contextmanager
def _unmounting(place: Path) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def tmpfs(place: Path, size: str) -> Any:
    """A small disk. Raises `PermissionError` where one may not be mounted."""
    place.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise PermissionError(str(error)) from error
    if done.returncode != 0:
        raise PermissionError(done.stderr.strip())
    return _unmounting(place)


_GONE = object()


def _paths(body: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        yield (*prefix, key)
        yield from _paths(value, (*prefix, key))


def _changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(body))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if value is _GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy
