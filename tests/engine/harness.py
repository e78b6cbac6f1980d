"""Epochs under control: a source whose every file is one epoch, and runs that end when all files are read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

import midstream as ms
from midstream.engine.preaggregation import PreAggregation
from midstream.engine.run import Run
from midstream.schemas import to_arrow

AVAILABLE_NOW = {"availableNow": True}
_FIRST_FILE_AT = 1_700_000_000


@dataclass(frozen=True)
class Inbox:
    """A directory a file source reads, one file an epoch, in the order they were added."""

    directory: Path
    schema: str

    def add(self, *rows: tuple[Any, ...]) -> None:
        """One more epoch of rows, in the order of the schema's columns."""
        self.directory.mkdir(parents=True, exist_ok=True)
        arrow = to_arrow(DataType.fromDDL(self.schema))  # type: ignore[arg-type]
        columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)]
        number = len(list(self.directory.glob("*.parquet")))
        hidden = self.directory / f".{number}"
        pq.write_table(pa.Table.from_arrays(arrays, schema=arrow), hidden)
        # The file source goes by modification times, which two files written at once may share.
        os.utime(hidden, (_FIRST_FILE_AT + number,) * 2)
        hidden.rename(self.directory / f"{number:05d}.parquet")

    def source(self, id: str = "events") -> ms.Stream:
        schema, directory = self.schema, str(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        return ms.source(
            id, lambda spark: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(directory)
        )

    def batch(self, spark: SparkSession) -> DataFrame:
        """All rows so far, for the batch computation a result is compared with."""
        return spark.read.schema(self.schema).parquet(str(self.directory))


def files_of_epochs(checkpoint: Path, epochs: int) -> list[range]:
    """Which files of its one file source each epoch has read, by Spark's log.

    Mostly one each. But a driver that dies when Spark has listed a file and not yet planned an epoch with it leaves two
    to the next epoch.
    """
    offsets = [(checkpoint / "spark" / "offsets" / str(epoch)).read_text() for epoch in range(epochs)]
    until = [files_before(text.splitlines()[-1]) for text in offsets]
    return [range(first, last) for first, last in pairwise([0, *until])]


def files_before(offset: str) -> int:
    """How many files come before an offset of the file source. A source nobody has read yet has none."""
    return 0 if offset == "-" else int(json.loads(offset)["logOffset"]) + 1


def run_available(flow: ms.Pipeline, spark: SparkSession, checkpoint: str | os.PathLike[str], **options: Any) -> Run:
    """Run until everything the sources have is committed."""
    run = flow.start(spark, os.fspath(checkpoint), trigger=AVAILABLE_NOW, **options)
    assert run.await_termination(timeout=250), f"still running after {len(run.epochs())} epochs"
    return run


@contextmanager
def preaggregated(in_epoch: Callable[[int], bool]) -> Iterator[None]:
    """Decide by epoch, instead of by the rows seen, whether aggregates begin before the exchange."""

    class Forced(PreAggregation):
        def __post_init__(self) -> None:
            self.seen = 0
            self._decide()

        def observe(self, reports: object) -> None:
            self.seen += 1
            self._decide()

        def _decide(self) -> None:
            for id_, keyed in self.compiled.keyed.items():
                if keyed.aggregates is not None:
                    self.grouped[id_] = keyed.aggregates.supports_grouped and in_epoch(self.seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midstream.engine.version.PreAggregation", Forced)
        yield


def latest(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[Any, dict[str, Any]]:
    """Of the changed rows of many epochs the newest of each key: the result as it stands now."""
    by_key = {}
    for row in rows:
        key = tuple(hashable(row[name]) for name in keys)
        by_key[key if len(keys) > 1 else key[0]] = dict(row)
    return by_key


def canonical(table: pa.Table | DataFrame) -> list[Any]:
    """Rows as comparable values in a fixed order, whichever side they come from."""
    arrow = table if isinstance(table, pa.Table) else table.toArrow()
    return canonical_rows(arrow.to_pylist())


def canonical_rows(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    return sorted((hashable(row) for row in rows), key=repr)


def as_it_stands(sink: ms.sinks.MemorySink, *keys: str) -> list[Any]:
    """What the changed rows of all epochs add up to, comparable with a batch result."""
    return canonical_rows(latest(sink.to_pylist(), *keys).values())


def hashable(value: Any) -> Any:
    """A value with equality as SQL groups by it: NaN equals NaN, -0.0 is 0.0, instants have no zone."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, Mapping):
        return tuple((name, hashable(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(hashable(item) for item in value)
    return value
