"""Reading whole tables of a checkpoint, for tools and tests."""

from __future__ import annotations

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.state.hashspace import WHOLE
from midstream.state.manifest import Manifest
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import Store


def read_table(store: Store, manifest: Manifest, step: str, table: str | None = None) -> pa.Table:
    """All rows (keys, then values) of one table of a keyed step at a manifest's epoch."""
    if step not in manifest.steps:
        raise CheckpointError.no_such_state(f"keyed step '{step}'", ", ".join(manifest.steps) or "none yet")
    tables = manifest.steps[step].tables
    name = table if table is not None else next(iter(tables))
    if name not in tables:
        raise CheckpointError.no_such_state(f"table '{name}' of step '{step}'", ", ".join(tables))
    snapshot = PartitionSnapshot(store, tables, WHOLE)
    nothing = tables[name].spec.schema.empty_table()
    return pa.concat_tables([nothing, *snapshot.scan(name)], promote_options="permissive")
