"""The whole result of an aggregate step, computed from its state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from midstream.aggregates.function import AggregateFunction
from midstream.state.hashspace import WHOLE
from midstream.state.manifest import Manifest
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import Store
from midstream.state.tables import Groups, KeyedFunction


def complete_result(store: Store, manifest: Manifest, step: str, function: KeyedFunction) -> pa.Table:
    """What the step would give in complete mode in an epoch without rows."""
    assert isinstance(function, AggregateFunction)
    if step not in manifest.steps:
        return function.output.empty_table()
    snapshot = PartitionSnapshot(store, manifest.steps[step].tables, WHOLE)
    none = np.empty(0, dtype=np.int64)
    groups = Groups(none, function.keys.empty_table(), none, none)
    return replace(function, complete=True).run(function.keys.empty_table(), groups, snapshot).output
