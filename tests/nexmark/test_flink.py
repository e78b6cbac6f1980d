"""What Flink is given: the same events, and a process that tells why it failed. The queries themselves run in the
bench, which compares every row, where there is a Python with PyFlink."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

from midstream.errors import MidstreamError
from midstream.nexmark.events import Nexmark
from midstream.nexmark.flink import python_with_flink, run_query, write_csv
from midstream.nexmark.flinkqueries import FLINK, TABLES
from midstream.nexmark.queries import QUERIES


def test_all_events_each_file_in_the_order_of_time(tmp_path: Path) -> None:
    events = 120_000
    stream = Nexmark(rate=1000)
    write_csv(tmp_path, stream, events)
    for table, columns in TABLES.items():
        names = [column.split()[0] for column in columns.split(", ")]
        options = pa.csv.ReadOptions(column_names=names)
        parts = [pa.csv.read_csv(file, read_options=options) for file in sorted((tmp_path / table).iterdir())]
        assert len(parts) == 2
        for part in parts:
            times = part["date_time"].to_pylist()
            assert times == sorted(times)
        assert sum(part.num_rows for part in parts) == stream.table(table, 0, events).num_rows


def test_every_query_is_one_of_ours() -> None:
    assert set(FLINK) <= set(QUERIES)


def test_a_python_without_flink_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSTREAM_FLINK_PYTHON", sys.executable)
    python = python_with_flink()
    assert python == Path(sys.executable)
    with pytest.raises(MidstreamError, match=r"FLINK_FAILED[\s\S]*pyflink"):
        run_query(python, "q0", [("auction", "BIGINT")], [tmp_path / "in"], [tmp_path / "out" / "x"])
