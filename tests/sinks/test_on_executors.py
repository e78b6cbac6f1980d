"""Staging where it happens in earnest: in Spark's Python workers, with the batches and types Spark hands over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from midstream.sinks import Sink, delta, for_each_epoch, memory, parquet
from midstream.sinks import postgres as sink_to
from midstream.sinks.base import StagedEpoch, StagedFile
from midstream.task.stage import stage, stage_name
from tests.sinks.harness import Stream

EVERY_SQL_TYPE = """
    SELECT id, id = 1 AS flag, CAST(id % 100 AS tinyint) AS tiny, CAST(id AS smallint) AS small,
      CAST(id AS int) AS `Int 4`,
      CAST(id AS float) AS f4, CAST(id AS double) AS f8, CAST(id AS decimal(38, 18)) AS `dec im"al`,
      concat('x', id) AS s, CAST(concat('x', id) AS binary) AS b, DATE'2024-02-29' AS d,
      TIMESTAMP'2024-02-29 12:00:00.123456' AS ts, TIMESTAMP_NTZ'2024-02-29 12:00:00.123456' AS ntz,
      array(id, NULL) AS l, array(array(id)) AS ll, named_struct('a', id, 'B b', array(id)) AS st,
      map('k', id) AS m, map(id, named_struct('x', id)) AS ms, CAST(NULL AS string) AS nothing
    FROM range(0, 1000, 1, 3)
"""


def stage_with_spark(stream: Stream, frame: DataFrame, epoch: int) -> StagedEpoch:
    store, schema, options = stream.context.staging, stream.context.schema, stream.sink.stage_options

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        file = stage(store, schema, stage_name(epoch, context.partitionId()), batches, options)
        if file is not None:
            yield pa.record_batch({"file": [json.dumps(asdict(file))]})

    reports = frame.mapInArrow(task, "file string").collect()
    return StagedEpoch(epoch, tuple(StagedFile(**json.loads(row.file)) for row in reports))


def stream_of(sink: Sink, frame: DataFrame, tmp_path: Path, spark: SparkSession) -> Stream:
    schema = to_arrow_schema(frame.schema, timezone=spark.conf.get("spark.sql.session.timeZone"))
    return Stream.into(sink, str(tmp_path / "chk"), schema=schema, spark=spark, keys=("id",)).prepare()


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_every_sql_type_through_every_sink(tmp_path: Path, spark: SparkSession, zone: str) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        check_every_sink(tmp_path, spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def check_every_sink(tmp_path: Path, spark: SparkSession) -> None:
    frame = spark.sql(EVERY_SQL_TYPE)
    expected = frame.toArrow().to_pylist()
    kept, handed = memory(), []

    def written_to(sink: Sink) -> None:
        stream = stream_of(sink, frame, tmp_path, spark)
        staged = stage_with_spark(stream, frame, 0)
        assert len(staged.files) == 3
        stream.finalise(staged)
        stream.finalise(staged)

    def same(found: list[dict[str, Any]]) -> bool:
        return bool(sorted(found, key=lambda row: row["id"]) == expected)

    written_to(kept)
    assert same(kept.to_pylist())
    written_to(parquet(tmp_path / "out"))
    assert same(spark.read.parquet(str(tmp_path / "out")).drop("epoch").toArrow().to_pylist())
    written_to(for_each_epoch(lambda rows, epoch: handed.append(rows.toArrow())))
    assert [same(table.to_pylist()) for table in handed] == [True, True]
    modes: list[Any] = ["append", "upsert", "overwrite"]
    for mode in modes:
        written_to(delta(tmp_path / mode, mode=mode))
        assert same(DeltaTable(tmp_path / mode).to_pyarrow_table().to_pylist())


def test_postgres_on_executors(tmp_path: Path, spark: SparkSession, postgres: str) -> None:
    frame = spark.sql(EVERY_SQL_TYPE)
    stream = stream_of(sink_to(postgres, "every_sql_type", mode="upsert"), frame, tmp_path, spark)
    stream.finalise(stage_with_spark(stream, frame, 0))
    with psycopg.connect(postgres) as db:
        found = db.execute("SELECT count(*), sum(id), sum(st['a']::int), min(ntz)::text FROM every_sql_type").fetchone()
        assert found == (1000, sum(range(1000)), sum(range(1000)), "2024-02-29 12:00:00.123456")
        db.execute("DROP TABLE every_sql_type")
