"""The whole result of an aggregate step, computed from its state."""

from __future__ import annotations

import pyarrow as pa

from midstream.aggregates.function import AggregateFunction
from midstream.aggregates.parts import results_of
from midstream.state.hashspace import WHOLE
from midstream.state.manifest import Manifest
from midstream.state.reader import PartitionSnapshot
from midstream.state.splits import hashes_of
from midstream.state.store import Store


def complete_result(store: Store, manifest: Manifest, step: str, function: AggregateFunction) -> pa.Table:
    """What the step would give in complete mode in an epoch without rows."""
    if step not in manifest.steps:
        return function.output.empty_table()
    state = manifest.steps[step]
    snapshot = PartitionSnapshot(store, state.tables, WHOLE)
    whole = function.everything(snapshot, {}, apart=hashes_of(state.splits))
    return pa.concat_tables([*whole, results_of(function, state.splits, snapshot)])
