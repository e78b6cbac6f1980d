"""State as it is shown: the tables there are, and pages of their rows with values as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from midstream.control.models import StateRows, StateTable, StateTables
from midstream.state.browse import browse
from midstream.state.manifest import Manifest
from midstream.state.store import Store


def tables_of(manifest: Manifest, retained: Sequence[int]) -> StateTables:
    """The tables of an epoch, and the epochs that can be read."""
    tables = [
        StateTable(
            step=step,
            table=name,
            keys=table.spec.keys.names,
            columns=table.spec.schema.names,
            rows=table.rows,
            bytes=table.bytes,
        )
        for step, held in manifest.steps.items()
        for name, table in held.tables.items()
    ]
    return StateTables(epochs=[retained[0], retained[-1]] if retained else [], tables=tables)


def rows_of(
    store: Store,
    manifest: Manifest,
    step: str,
    table: str | None,
    where: Mapping[str, str],
    limit: int,
    offset: int,
) -> StateRows:
    page = browse(store, manifest, step, table, where, limit, offset)
    return StateRows(
        step=step,
        table=page.table,
        epoch=manifest.epoch,
        columns=list(page.columns),
        keys=list(page.keys),
        rows=[[plain(value) for value in row.values()] for row in page.rows.to_pylist()],
        matched=page.matched,
        offset=offset,
        complete=offset + len(page.rows) >= page.matched,
    )


def plain(value: Any) -> Any:
    """A value as JSON has it: what it has no word for, as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return str(value)
