"""Reading whole tables of a checkpoint, for tools and tests."""

from __future__ import annotations

import pyarrow as pa

from midstream.state.browse import pieces
from midstream.state.manifest import Manifest
from midstream.state.store import Store


def read_table(store: Store, manifest: Manifest, step: str, table: str | None = None) -> pa.Table:
    """All rows (keys, then values) of one table of a keyed step at a manifest's epoch."""
    return pa.concat_tables(pieces(store, manifest, step, table), promote_options="permissive")
