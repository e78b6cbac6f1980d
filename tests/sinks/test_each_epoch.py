from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from midstream.errors import SinkError
from midstream.sinks import for_each_epoch
from tests.servers import S3Server
from tests.sinks.harness import HOSTILE_NAMES, Stream, every_type, rows, unusual_types

NewStream = Callable[..., Stream]


def test_the_function_gets_the_rows_and_the_epoch(new_stream: NewStream, spark: SparkSession) -> None:
    calls: list[tuple[int, list[tuple[Any, ...]]]] = []
    sink = for_each_epoch(lambda df, epoch: calls.append((epoch, sorted(map(tuple, df.collect()), key=str))))
    stream = new_stream(sink, spark=spark).prepare()
    staged = stream.write(3, rows(("a", 1)), rows(("b", 2), (None, 3)))
    stream.write(4)
    stream.finalise(staged)
    expected = [("a", 1), ("b", 2), (None, 3)]
    assert calls == [(3, expected), (4, []), (3, expected)]


def test_an_empty_epoch_has_the_schema(new_stream: NewStream, spark: SparkSession) -> None:
    seen: list[Any] = []
    stream = new_stream(for_each_epoch(lambda df, epoch: seen.append(df.schema)), spark=spark).prepare()
    stream.write(0)
    stream.write(1, rows(("a", 1)))
    assert seen[0] == seen[1]
    assert seen[0].simpleString() == "struct<k:string,n:bigint>"


def test_every_type_and_hostile_names_from_files(tmp_path: Path, spark: SparkSession) -> None:
    checkpoint = str(tmp_path / "a [b] {c} *d? e%20f")
    check_types(spark, checkpoint, None, with_every_name(every_type()))
    check_types(spark, checkpoint, None, unusual_types().drop("time"))
    check_types(spark, checkpoint, None, unusual_types())


def test_every_type_and_hostile_names_from_a_remote_store(s3_server: S3Server, spark: SparkSession) -> None:
    for table in (with_every_name(every_type()), unusual_types()):
        check_types(spark, s3_server.url("each-epoch"), s3_server.options, table)


def with_every_name(table: pa.Table) -> pa.Table:
    for name in HOSTILE_NAMES:
        table = table.append_column(name, pa.array([1, None, 3]))
    return table


def check_types(spark: SparkSession, checkpoint: str, options: dict[str, str] | None, table: pa.Table) -> None:
    seen: list[pa.Table] = []
    sink = for_each_epoch(lambda df, epoch: seen.append(df.toArrow()))
    stream = Stream.into(sink, checkpoint, options=options, schema=table.schema, spark=spark).prepare()
    stream.write(0, table)
    stream.write(1)
    assert seen[0].to_pylist() == table.to_pylist()
    assert seen[1].schema.names == table.column_names
    assert seen[1].num_rows == 0


def test_an_error_names_function_epoch_and_cause(new_stream: NewStream, spark: SparkSession) -> None:
    def fails(df: DataFrame, epoch: int) -> None:
        raise ValueError("no such place")

    sink = for_each_epoch(fails)
    with pytest.raises(
        SinkError, match=r"fails \(.*test_each_epoch.py:\d+\).*ValueError in epoch 0: no such"
    ) as caught:
        new_stream(sink, spark=spark).prepare().write(0, rows(("a", 1)))
    assert isinstance(caught.value.__cause__, ValueError)
    assert "fails" in sink.describe()["target"]


def test_only_functions_are_taken() -> None:
    with pytest.raises(SinkError, match="BAD_SINK_TARGET"):
        for_each_epoch("not a function")  # type: ignore[arg-type]
