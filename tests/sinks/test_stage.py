from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.sinks.base import StageOptions
from midstream.sinks.staging import Folder, read_batches, read_table
from midstream.state.store import Store, open_store
from midstream.task import stage as stage_module
from midstream.task.stage import stage, stage_name
from tests.sinks.harness import every_type, rows, unusual_types


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "staging"))


def test_rows_come_back_in_order_with_their_types(store: Store) -> None:
    for number, table in enumerate([every_type(), unusual_types()]):
        file = stage(store, table.schema, stage_name(0, number), table.to_batches(max_chunksize=1))
        assert file is not None
        assert file.rows == table.num_rows
        assert file.bytes == store.read(file.path).size
        assert read_table(store, [file], table.schema) == table


def test_no_rows_no_file(store: Store) -> None:
    schema = rows().schema
    assert stage(store, schema, stage_name(0, 0), []) is None
    assert stage(store, schema, stage_name(0, 0), [pa.RecordBatch.from_pylist([], schema)]) is None
    assert list(store.list("")) == []


def test_names_are_unique_and_begin_with_the_epoch() -> None:
    names = {stage_name(12, 3) for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("000000000012/00003-") for name in names)


def test_small_batches_share_a_row_group(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"n": range(10_000)})
    one = stage(store, table.schema, "one", table.to_batches(max_chunksize=100))
    assert one is not None
    assert pq.read_metadata(pa.BufferReader(store.read("one"))).num_row_groups == 1
    monkeypatch.setattr(stage_module, "ROW_GROUP_BYTES", 8 * 1000)
    stage(store, table.schema, "many", table.to_batches(max_chunksize=100))
    assert pq.read_metadata(pa.BufferReader(store.read("many"))).num_row_groups == 10
    assert sum(batch.num_rows for batch in read_batches(store, [one], rows=999)) == 10_000


def test_batches_are_cast_to_the_schema_of_the_sink(store: Store) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    given = pa.table({"at": pa.array([0], pa.timestamp("us", "Europe/Rome"))})
    file = stage(store, schema, "x", given.to_batches())
    assert file is not None
    assert read_table(store, [file], schema).schema == schema


def test_a_batch_of_another_shape_is_an_error(store: Store) -> None:
    with pytest.raises((pa.ArrowInvalid, ValueError)):
        stage(store, pa.schema([("a", pa.int64())]), "x", pa.table({"b": [1]}).to_batches())


def test_without_files_rows_are_counted(store: Store) -> None:
    file = stage(store, rows().schema, "x", rows(("a", 1), ("b", 2)).to_batches(), StageOptions(files=False))
    assert file is not None
    assert (file.path, file.rows, file.bytes) == ("", 2, 0)
    assert list(store.list("")) == []


def test_statistics_are_plain_json(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "ROW_GROUP_BYTES", 1)
    table = pa.table(
        {
            "list": [[3], [4, 5], None],
            "n": [3, None, -1],
            "float": [1.0, math.nan, 2.0],
            "s": ["b", "a", None],
            "long": ["x" * 33, "a", "b"],
            "d": [date(1, 2, 3), None, date(2024, 1, 1)],
            "at": pa.array(
                [datetime(2024, 1, 1, 1, tzinfo=UTC), None, datetime(2023, 1, 1, tzinfo=UTC)],
                pa.timestamp("us", "Europe/Rome"),
            ),
            "local": pa.array([datetime(999, 1, 1), None, None], pa.timestamp("us")),
            "nothing": pa.array([None] * 3, pa.int64()),
        }
    )
    file = stage(
        store, table.schema, "x", table.to_batches(max_chunksize=1), StageOptions(suffix=".parquet", statistics=True)
    )
    assert file is not None
    assert file.path == "x.parquet"
    assert json.loads(json.dumps(file.stats)) == {
        "numRecords": 3,
        "nullCount": {
            "n": 1, "float": 0, "s": 1, "long": 0, "d": 1, "at": 1, "local": 2, "nothing": 3
        },
        "minValues": {
            "n": -1, "s": "a", "d": "0001-02-03",
            "at": "2023-01-01T00:00:00.000000Z", "local": "0999-01-01T00:00:00.000000",
        },
        "maxValues": {
            "n": 3, "s": "b", "d": "2024-01-01",
            "at": "2024-01-01T01:00:00.000000Z", "local": "0999-01-01T00:00:00.000000",
        },
    }  # fmt: skip


def test_a_folder_is_a_store(store: Store) -> None:
    folder = Folder(store, "staging/out")
    folder.put("0/a", b"1")
    store.put("staging/outside", b"2")
    assert not folder.create("0/a", b"2")
    assert folder.read("0/a", -1).to_pybytes() == b"1"
    assert [info.path for info in folder.list("")] == ["0/a"]
    assert [info.path for info in folder.list("0")] == ["0/a"]
    assert folder.url == f"{store.url}/staging/out"
    assert folder.local_path("0/a") == store.local_path("staging/out/0/a")
    folder.delete(["0/a", "0/gone"])
    assert list(folder.list("")) == []
