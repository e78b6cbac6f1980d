"""A task like those of an instance to come, which reads its state and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from midstream.errors import MidstreamError
from midstream.state.hashspace import HashRange, number_of
from midstream.state.ledger import IDENTITY
from midstream.state.manifest import TableState
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import Store
from midstream.state.tables import KeyedFunction, TimedFunction
from midstream.task.keyed import HASH_COLUMN
from midstream.task.worker import begin

_OPENING_SECONDS = 0.3
"""For so long files are opened at most: a rehearsal takes the processor from tasks of the stream."""


@dataclass(frozen=True)
class Rehearse:
    """Opens what this machine has of the state of the partition its rows are of, and fetches nothing.

    The function comes along but is not called: to load it is to load the modules it is in, and nobody knows what it
    does with made-up rows.
    """

    store: Store
    function: KeyedFunction | TimedFunction
    tables: Mapping[str, TableState]
    ranges: tuple[HashRange, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        first = [batch.column(HASH_COLUMN)[0].as_py() for batch in batches if batch.num_rows]
        if first:
            # What cannot be read now can be when it counts, or is told then.
            with suppress(MidstreamError):
                self._open(self.ranges[number_of(first[0], self.ranges)])
        yield from ()

    def _open(self, range_: HashRange) -> None:
        self.store.read(IDENTITY)  # connects to the store, of which nothing else may be needed
        until = time.monotonic() + _OPENING_SECONDS
        PartitionSnapshot(self.store, self.tables, range_).open(lambda: time.monotonic() > until)
