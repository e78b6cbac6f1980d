"""What a task of a rehearsal does on an executor: it opens state and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from midstream.state.cache import process_cache
from midstream.state.hashspace import HashRange, even_ranges
from midstream.state.ledger import Ledger
from midstream.state.manifest import TableState
from midstream.state.reader import PartitionSnapshot
from midstream.state.segment import OPEN_SEGMENTS, encode_segment
from midstream.state.store import Store, open_store
from midstream.state.tables import Groups, KeyedResult, TableDelta, TableKind, TableSpec
from midstream.task.keyed import HASH_COLUMN
from midstream.task.rehearse import Practice, Rehearse
from tests.servers import S3Server

ROWS, BLOCK = 4_000, 100
SPEC = TableSpec("t", pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]), TableKind.VALUE, None)
HALVES = even_ranges(2)


class NeverCalled:
    tables = (SPEC,)

    def run(self, rows: pa.Table, groups: Groups, state: PartitionSnapshot) -> KeyedResult:
        raise AssertionError("a function is not given rows that were made up")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "chk"))


@pytest.fixture
def task(store: Store) -> Rehearse:
    return rehearsal_of(store)


def rehearsal_of(store: Store) -> Rehearse:
    Ledger.open(store)
    hashes = np.linspace(-(2**63), 2**63 - 2**12, ROWS).astype(np.int64)
    encoded = encode_segment(SPEC, hashes, pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS)}), None, BLOCK)
    store.put("segments/s/t/base.seg", encoded.data)
    table = TableState(SPEC, (encoded.info("segments/s/t/base.seg", 0, 0, 2),), rows=ROWS)
    return Rehearse(store, NeverCalled(), {"t": table}, HALVES)


def row_of(range_: HashRange) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({HASH_COLUMN: pa.array([range_.start], pa.int64()), "k": pa.array([None])})


def opened(task: Rehearse) -> list[int]:
    return sorted(OPEN_SEGMENTS.get(task.store, task.tables["t"].segments[0])._blocks)


def test_it_opens_the_state_of_its_partition_and_writes_nothing(task: Rehearse, store: Store) -> None:
    before = list(store.list(""))
    assert list(task(row_of(HALVES[1]))) == []
    assert opened(task) == list(range(ROWS // BLOCK // 2, ROWS // BLOCK))
    assert list(store.list("")) == before


def test_what_is_not_on_this_machine_is_not_fetched(s3_server: S3Server) -> None:
    task = rehearsal_of(open_store(s3_server.url(f"rehearsal/{uuid4().hex}"), s3_server.options))
    before = process_cache().fetched_bytes
    assert list(task(row_of(HALVES[1]))) == []
    assert opened(task) == []
    (segment,) = task.tables["t"].segments
    OPEN_SEGMENTS.get(task.store, segment).bring([ROWS // BLOCK - 1])
    brought = process_cache().fetched_bytes
    assert list(task(row_of(HALVES[1]))) == []
    assert opened(task) == [ROWS // BLOCK - 1]
    assert process_cache().fetched_bytes == brought > before


class Practised:
    """Looks its keys up and writes them all. Notes what it was called with, and what became of it."""

    tables = (SPEC,)

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.looked_up: list[int] = []

    def run(self, rows: pa.Table, groups: Groups, state: PartitionSnapshot) -> KeyedResult:
        self.rows.append(rows.num_rows)
        self.looked_up.append(int(state.lookup("t", groups.hashes, groups.keys).found.sum()))
        values = pa.table({"v": pa.nulls(len(groups), pa.int64())})
        return KeyedResult(rows, {"t": TableDelta(groups.hashes, groups.keys, values, added=len(groups))})


def practising(task: Rehearse) -> tuple[Rehearse, Practised]:
    function = Practised()
    shipped = pa.schema([(HASH_COLUMN, pa.int64()), ("k", pa.int64())])
    return replace(task, practice=Practice(function, shipped, ("k",))), function


def test_a_function_that_is_ours_is_run_and_what_it_would_write_is_not(task: Rehearse, store: Store) -> None:
    before = list(store.list(""))
    rehearsal, function = practising(task)
    assert list(rehearsal(row_of(HALVES[1]))) == []
    assert (function.rows, function.looked_up) == ([1], [0])
    assert list(store.list("")) == before


def test_practice_fetches_nothing_either(s3_server: S3Server) -> None:
    task, function = practising(rehearsal_of(open_store(s3_server.url(f"rehearsal/{uuid4().hex}"), s3_server.options)))
    before = process_cache().fetched_bytes
    assert list(task(row_of(HALVES[1]))) == []
    assert (function.rows, function.looked_up) == ([1], [0])
    assert process_cache().fetched_bytes == before
    (segment,) = task.tables["t"].segments
    OPEN_SEGMENTS.get(task.store, segment).bring([ROWS // BLOCK // 2])
    before = process_cache().fetched_bytes
    assert list(task(row_of(HALVES[1]))) == []
    assert function.looked_up == [0, 0]
    assert process_cache().fetched_bytes == before


def test_a_function_that_cannot_do_with_made_up_rows_fails_no_rehearsal(task: Rehearse) -> None:
    rehearsal, function = practising(task)
    function.run = lambda *_: pa.scalar(1, pa.int8()).cast(pa.date32())  # type: ignore[method-assign]
    assert list(rehearsal(row_of(HALVES[1]))) == []


def test_without_rows_it_does_nothing(task: Rehearse) -> None:
    assert list(task(iter(()))) == []
    assert opened(task) == []


def test_state_that_cannot_be_read_is_left_to_the_epoch(task: Rehearse, store: Store) -> None:
    store.delete(["segments/s/t/base.seg"])
    assert list(task(row_of(HALVES[0]))) == []
