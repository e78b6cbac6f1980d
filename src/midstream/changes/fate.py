"""What becomes of state when the schema it is kept in changes: kept, converted as it is read, or lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from midstream.state.conversion import Conversion, widens
from midstream.state.tables import TableSpec


class Fate(StrEnum):
    """What becomes of a step's state. `moved`: the same rows, in other partitions."""

    NONE = "none"
    KEPT = "kept"
    MOVED = "moved"
    CONVERTED = "converted"
    NEW = "new"
    LOST = "lost"


@dataclass(frozen=True)
class TableFate:
    """What becomes of one table, why, and how its rows are converted. What is lost may still convert the rest."""

    fate: Fate
    notes: tuple[str, ...] = ()
    conversion: Conversion | None = None


def table_fate(
    before: TableSpec, after: TableSpec, rename: Mapping[str, str], code: bytes | None, back: bool = False
) -> TableFate:
    """The fate of a table whose spec changes. `back` is the way back of an undo: what it added may go again."""
    different = _other_kind(before, after)
    if different:
        return TableFate(Fate.LOST, (different,))
    if before.values.equals(after.values) and not rename and code is None:
        return TableFate(Fate.KEPT)
    if code is not None:
        return TableFate(Fate.CONVERTED, ("by your function",), Conversion(after.values, dict(rename), code))
    notes, lost, whole = _columns(before.values, after.values, rename, back)
    conversion = Conversion(after.values, dict(rename))
    if whole:
        return TableFate(Fate.LOST, tuple(lost))
    return TableFate(Fate.LOST if lost else Fate.CONVERTED, (*lost, *notes), conversion)


def _columns(
    before: pa.Schema, after: pa.Schema, rename: Mapping[str, str], back: bool
) -> tuple[list[str], list[str], bool]:
    """What happens to the columns, what of them is lost, and whether that makes the rest useless."""
    notes: list[str] = []
    lost: list[str] = []
    whole = False
    unknown = [old for old in rename if old not in before.names]
    if unknown:
        return [], [f"there is no column '{unknown[0]}' to rename"], True
    renamed = {rename.get(field.name, field.name): field for field in before}
    for name, field in renamed.items():
        if name != field.name:
            notes.append(f"column '{field.name}' becomes '{name}'")
        if name not in after.names:
            (notes if back else lost).append(f"column '{field.name}' goes")
            continue
        wanted = after.field(name).type
        if field.type == wanted:
            continue
        if widens(field.type, wanted):
            notes.append(f"column '{name}' gets wider, {field.type} to {wanted}")
        elif back and widens(wanted, field.type):
            notes.append(f"column '{name}' gets narrow again, {field.type} to {wanted}")
        else:
            lost.append(f"column '{name}' cannot be made {wanted} of {field.type}")
            whole = True
    for field in after:
        if field.name not in renamed:
            if not field.nullable:
                lost.append(f"column '{field.name}' is new and may not be null")
                whole = True
            notes.append(f"column '{field.name}' is added, null for what is there")
    return notes, lost, whole


def _other_kind(before: TableSpec, after: TableSpec) -> str | None:
    if [(f.name, f.type) for f in before.keys] != [(f.name, f.type) for f in after.keys]:
        return f"it is keyed by {_shown(after.keys)}, was by {_shown(before.keys)}"
    if before.kind != after.kind:
        return f"the table '{after.name}' is a {after.kind} table, was a {before.kind} table"
    if before.range_column != after.range_column:
        return f"the range column of '{after.name}' is {after.range_column}, was {before.range_column}"
    column = before.range_column
    if column in before.values.names and before.values.field(column) != after.values.field(column):
        return f"the range column of '{after.name}' has another type"
    return None


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
