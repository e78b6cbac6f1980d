"""Looking into a table of a checkpoint: rows that match, a page at a time, or all of them into a file.

Rows come in bounded pieces: a table may be larger than the memory of whoever looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midstream.errors import CheckpointError
from midstream.state.hashspace import WHOLE
from midstream.state.ledger import committed_epochs, read_manifest
from midstream.state.manifest import Manifest, TableState
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import Store

NULL = "null"
"""How a filter says that a value is absent."""


@dataclass(frozen=True)
class Page:
    """Some of the rows that match, and how many do."""

    table: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    rows: pa.Table
    matched: int


def manifest_at(store: Store, epoch: int | None = None) -> Manifest:
    """The last epoch, or any that is retained."""
    retained = committed_epochs(store)
    if not retained:
        raise CheckpointError.no_such_state(f"checkpoint at {store.url}", "no epoch committed there")
    if epoch is not None and epoch not in retained:
        raise CheckpointError.no_such_state(f"epoch {epoch}", f"epochs {retained[0]} to {retained[-1]}")
    return read_manifest(store, retained[-1] if epoch is None else epoch)


def table_of(manifest: Manifest, step: str, table: str | None = None) -> tuple[str, TableState]:
    """A table of a keyed step by name: its first unless one is named."""
    if step not in manifest.steps:
        raise CheckpointError.no_such_state(f"keyed step '{step}'", ", ".join(manifest.steps) or "none yet")
    tables = manifest.steps[step].tables
    name = table if table is not None else next(iter(tables))
    if name not in tables:
        raise CheckpointError.no_such_state(f"table '{name}' of step '{step}'", ", ".join(tables))
    return name, tables[name]


def pieces(
    store: Store, manifest: Manifest, step: str, table: str | None = None, where: Mapping[str, str] | None = None
) -> Iterator[pa.Table]:
    """The rows (keys, then values) that match, piece by piece; at least one piece, if only an empty one."""
    name, state = table_of(manifest, step, table)
    wanted = {column: _value(state.spec.schema, column, text) for column, text in (where or {}).items()}
    yield state.spec.schema.empty_table()
    for piece in PartitionSnapshot(store, manifest.steps[step].tables, WHOLE).scan(name):
        for column, value in wanted.items():
            found = pc.is_null(piece.column(column)) if value is None else pc.equal(piece.column(column), value)
            piece = piece.filter(found)
        if len(piece):
            yield piece


def browse(
    store: Store,
    manifest: Manifest,
    step: str,
    table: str | None = None,
    where: Mapping[str, str] | None = None,
    limit: int = 100,
    offset: int = 0,
) -> Page:
    """A page of the rows whose columns have the values of `where`, which are given as text."""
    name, state = table_of(manifest, step, table)
    matched, kept = 0, [state.spec.schema.empty_table()]
    for piece in pieces(store, manifest, step, table, where):
        first, last = max(offset - matched, 0), offset + limit - matched
        if first < len(piece) and last > 0:
            kept.append(piece.slice(first, last - first))
        matched += len(piece)
        if not where and matched >= offset + limit:
            matched = state.rows
            break
    rows = pa.concat_tables(kept, promote_options="permissive")
    return Page(name, tuple(rows.column_names), tuple(state.spec.keys.names), rows, matched)


def export(
    store: Store,
    manifest: Manifest,
    step: str,
    table: str | None,
    target: Path | IO[bytes],
    where: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Write the rows that match as Parquet; yields how many have been written, as it goes."""
    _, state = table_of(manifest, step, table)
    schema = pa.schema([field.with_nullable(True) for field in state.spec.schema])
    written = 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for piece in pieces(store, manifest, step, table, where):
            writer.write_table(piece.cast(schema))
            written += len(piece)
            yield written


def _value(schema: pa.Schema, column: str, text: str) -> pa.Scalar | None:
    """A value as the column has it, from text."""
    if column not in schema.names:
        raise CheckpointError.no_such_state(f"column '{column}'", ", ".join(schema.names))
    if text == NULL:
        return None
    kind = schema.field(column).type
    try:
        return pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
        raise CheckpointError.bad_filter(column, text, str(kind)) from cause
