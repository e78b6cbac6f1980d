"""Staging: a task writes its part of an epoch for one sink as one Parquet file. Runs in Spark's Python workers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.sinks.base import StagedFile, StageOptions
from midstream.sinks.staging import epoch_folder
from midstream.sinks.statistics import column_statistics
from midstream.state.store import Store

# Spark hands over batches of 10 000 rows, and a row group each would make files that are slow to read. A row group is
# closed by the bytes it holds in Arrow, so that wide rows do not swell the worker.
ROW_GROUP_BYTES = 32 * 1024 * 1024


def stage_name(epoch: int, partition: int) -> str:
    """A path no other attempt uses: `000000000012/00003-<uuid>`."""
    return f"{epoch_folder(epoch)}/{partition:05d}-{uuid.uuid4().hex}"


def stage(
    store: Store,
    schema: pa.Schema,
    name: str,
    batches: Iterable[pa.RecordBatch],
    options: StageOptions = StageOptions(),  # noqa: B008 (frozen)
) -> StagedFile | None:
    """Write one task's rows as one Parquet file; None when there are no rows.

    A sink that wants no files (`options.files` is false) gets the count of rows under an empty path.
    """
    if not options.files:
        counted = sum(batch.num_rows for batch in batches)
        return StagedFile("", counted, 0) if counted else None
    output = pa.BufferOutputStream()
    rows = 0
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for table in _row_groups(schema, batches):
            writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
    if rows == 0:
        return None
    data = output.getvalue()
    path = name + options.suffix
    store.put(path, data)
    statistics = column_statistics(_footer(data), schema) if options.statistics else None
    return StagedFile(path, rows, data.size, statistics)


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        pending.append(batch if batch.schema.equals(schema) else batch.cast(schema))
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending, schema)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending, schema)


def _footer(data: pa.Buffer) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(data))
