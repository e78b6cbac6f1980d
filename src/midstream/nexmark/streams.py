"""The three tables of NEXMark as streaming DataFrames: made as they are read, or read from files made before."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from midstream.nexmark.events import SCHEMAS, Nexmark
from midstream.nexmark.source import NexmarkSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Loader: TypeAlias = "Callable[[str, SparkSession], DataFrame]"
"""Gives a table as a stream."""

_FIRST_FILE_AT = 1_700_000_000
_ROW_GROUPS = 4
"""In a file: Spark reads one file with as many tasks."""


def generated(options: Mapping[str, int]) -> Loader:
    """Streams of the data source `nexmark`."""

    def load(table: str, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(NexmarkSource)
        reader = spark.readStream.format(NexmarkSource.name()).option("table", table)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    return load


def write_files(directory: Path, stream: Nexmark, events: int, events_per_file: int) -> None:
    """Write all events, by table, in files of so many events each."""
    for table in SCHEMAS:
        (directory / table).mkdir(parents=True)
        for number, first in enumerate(range(0, events, events_per_file)):
            rows = stream.table(table, first, min(first + events_per_file, events))
            file = directory / table / f"{number:06d}.parquet"
            pq.write_table(rows, file, row_group_size=max(1, -(-rows.num_rows // _ROW_GROUPS)))
            # The file source goes by modification times.
            os.utime(file, (_FIRST_FILE_AT + number,) * 2)


def read_file(directory: Path, number: int) -> Loader:
    """The events of one epoch, as tables that end."""

    def load(table: str, spark: SparkSession) -> DataFrame:
        return spark.read.schema(from_arrow_schema(SCHEMAS[table])).parquet(f"{directory}/{table}/{number:06d}.parquet")

    return load


def read_files(directory: Path) -> Loader:
    """Streams of written events, one file of each table an epoch."""

    def load(table: str, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(from_arrow_schema(SCHEMAS[table])).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(directory / table))

    return load
