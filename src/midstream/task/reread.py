"""Reading staged rows again inside tasks: what was fed back in the epoch before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from midstream.sinks.staging import read_batches
from midstream.state.manifest import StagedFile
from midstream.state.store import Store


@dataclass(frozen=True)
class ReadStaged:
    """A task that is given numbers of files and gives their rows."""

    store: Store
    files: tuple[StagedFile, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            files = [self.files[number] for number in numbers.column(0).to_pylist()]
            for rows in read_batches(self.store, files):
                yield rows.select(self.schema.names).cast(self.schema)
