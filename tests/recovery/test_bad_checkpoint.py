"""Checkpoints that are damaged, incomplete or of another pipeline: a clear error, and nothing lost once put right."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

import midstream as ms
from midstream.errors import CheckpointError
from midstream.state.compaction import CompactionPolicy
from midstream.state.compactor import Compactor
from midstream.state.ledger import read_manifest
from midstream.state.manifest import decode_manifest, manifest_path
from midstream.state.store import open_store
from tests.engine.harness import Inbox
from tests.recovery.processes import wait_until
from tests.recovery.summing import SCHEMA, Case, summed

# Workers get the functions below by value and need not be able to import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


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
