"""The whole result of an aggregate step, computed from its state."""

from __future__ import annotations

import pyarrow as pa

from midstream.aggregates.function import AggregateFunction
from midstream.state.hashspace import WHOLE
from midstream.state.manifest import Manifest
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import Store


def complete_result(store: Store, manifest: Manifest, step: str, function: AggregateFunction) -> pa.Table:
    """What the step would give in complete mode in an epoch without rows."""
    if step not in manifest.steps:
        return function.output.empty_table()
    snapshot = PartitionSnapshot(store, manifest.steps[step].tables, WHOLE)
    return pa.concat_tables(function.everything(snapshot, {}))
