"""A task like those of an instance to come, which reads its state and writes nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from midstream.errors import MidstreamError
from midstream.state.hashspace import HashRange, number_of
from midstream.state.keys import flatten, group_rows
from midstream.state.ledger import IDENTITY
from midstream.state.manifest import TableState
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import Store
from midstream.state.tables import KeyedFunction, TimedFunction
from midstream.task.keyed import HASH_COLUMN, encoded_delta
from midstream.task.worker import begin

_logger = logging.getLogger(__name__)

_OPENING_SECONDS = 0.3
"""For so long files are opened at most: a rehearsal takes the processor from tasks of the stream."""


@dataclass(frozen=True)
class Practice:
    """A function that may be run on made-up rows, for it is all ours: what its tasks get, and of it the key."""

    function: KeyedFunction
    input: pa.Schema
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Rehearse:
    """Opens what this machine has of the state of the partition its rows are of, and fetches nothing.

    The function comes along, and to load it is to load the modules it is in. It is not called unless there is a
    `practice`: nobody knows what a user's does with made-up rows.
    """

    store: Store
    function: KeyedFunction | TimedFunction
    tables: Mapping[str, TableState]
    ranges: tuple[HashRange, ...]
    practice: Practice | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        held = [batch for batch in batches if batch.num_rows]
        if held:
            range_ = self.ranges[number_of(held[0].column(HASH_COLUMN)[0].as_py(), self.ranges)]
            # What cannot be read now can be when it counts, or is told then.
            with suppress(MidstreamError):
                self._open(range_)
                self._practise(held, range_)
        yield from ()

    def _open(self, range_: HashRange) -> None:
        self.store.read(IDENTITY)  # connects to the store, of which nothing else may be needed
        until = time.monotonic() + _OPENING_SECONDS
        PartitionSnapshot(self.store, self.tables, range_).open(lambda: time.monotonic() > until)

    def _practise(self, batches: list[pa.RecordBatch], range_: HashRange) -> None:
        """Do what a task does with rows, up to what it would write."""
        if self.practice is None:
            return
        rows = flatten(pa.Table.from_batches(batches).cast(self.practice.input))
        groups = group_rows(rows.column(HASH_COLUMN).to_numpy(), rows.select(list(self.practice.keys)))
        snapshot = PartitionSnapshot(self.store, self.tables, range_).at_hand(int(groups.hashes[0]))
        try:
            result = self.practice.function.run(rows, groups, snapshot)
            for name, delta in result.deltas.items():
                encoded_delta(self.tables[name].spec, delta)
        except (ArithmeticError, TypeError, ValueError, pa.ArrowException):
            # Rows of the stream are not made up, and more is wrong if they do that, too.
            _logger.info("made-up rows do not go through %s", type(self.practice.function).__name__, exc_info=True)
