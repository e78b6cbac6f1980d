"""Where staged files lie and how the driver reads them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.sinks.base import StagedFile
from midstream.state.store import ObjectInfo, Store

STAGING = "staging"
"""The folder of a checkpoint that holds `staging/<sink id>/<epoch>/…`; the engine collects what lies there."""


@dataclass(frozen=True)
class Folder:
    """A part of a store, as a store of its own."""

    store: Store
    prefix: str

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.prefix}"

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        return self.store.create(self._inside(path), data)

    def put(self, path: str, data: bytes | pa.Buffer, pause: Callable[[], None] | None = None) -> None:
        self.store.put(self._inside(path), data, pause)

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        return self.store.read(self._inside(path), start, length)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for info in self.store.list(self._inside(prefix) if prefix else self.prefix):
            yield replace(info, path=info.path.removeprefix(f"{self.prefix}/"))

    def delete(self, paths: Iterable[str]) -> None:
        self.store.delete([self._inside(path) for path in paths])

    def sweep(self, older_than_seconds: float) -> int:
        return self.store.sweep(older_than_seconds)

    def local_path(self, path: str) -> Path | None:
        return self.store.local_path(self._inside(path))

    def _inside(self, path: str) -> str:
        return f"{self.prefix}/{path}"


def in_checkpoint(checkpoint: Store, sink_id: str) -> Store:
    """The staging store of a sink whose target is not a place to stage files in."""
    return Folder(checkpoint, f"{STAGING}/{sink_id}")


def epoch_folder(epoch: int) -> str:
    """The first part of every staged path, so that an epoch's leftovers are found by name.

    >>> epoch_folder(12)
    '000000000012'
    """
    return f"{epoch:012d}"


def read_batches(store: Store, files: Iterable[StagedFile], rows: int = 65_536) -> Iterator[pa.RecordBatch]:
    """The staged rows in order, a bounded batch at a time; one file at most is in memory."""
    for file in files:
        with pq.ParquetFile(pa.BufferReader(store.read(file.path))) as parquet:
            yield from parquet.iter_batches(batch_size=rows)


def read_table(store: Store, files: Iterable[StagedFile], schema: pa.Schema) -> pa.Table:
    """All staged rows of an epoch, in this schema."""
    return pa.Table.from_batches((batch.cast(schema) for batch in read_batches(store, files)), schema)
