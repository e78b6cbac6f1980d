"""User functions as keyed functions: `(rows, state) -> (output, new_state)` on tables, or key by key."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.errors import UserFunctionError
from midstream.state.matching import match_groups
from midstream.state.ranges import to_orderable
from midstream.state.tables import Groups, KeyedResult, Mask, Positions, Snapshot, TableDelta, TableKind, TableSpec
from midstream.task.frames import Library, from_arrow, library_of, to_arrow

STATE = "state"
"""The name of the table of a step that keeps only one."""


@dataclass(frozen=True)
class TableUpdate:
    """How a function changes one table when plain replacement is not what it wants.

    `rows` replaces all rows of this epoch's keys; `append` adds rows to a list table and keeps the old ones;
    `delete_below` deletes every row, of any key, whose range column is lower.
    """

    rows: Any = None
    append: Any = None
    delete_below: Any = None


@dataclass(frozen=True)
class UserFunction:
    """A user's table function with the schemas it promised."""

    step: str
    function: Callable[..., Any]
    keys: tuple[str, ...]
    tables: tuple[TableSpec, ...]
    output: pa.Schema
    named: bool
    more: tuple[Any, ...] = ()
    """What else the function is given."""

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        if not len(groups):
            return KeyedResult(self.output.empty_table())
        old = {spec.name: _Old.read(spec, groups, snapshot) for spec in self.tables}
        output, updates = self._call(rows, old)
        deltas = {
            spec.name: self._delta(spec, groups, old[spec.name], updates[spec.name])
            for spec in self.tables
            if spec.name in updates
        }
        return KeyedResult(self._checked(output, self.output, "its output"), deltas)

    def _call(self, rows: pa.Table, old: Mapping[str, _Old]) -> tuple[Any, Mapping[str, Any]]:
        """The function's output and the tables it changed: one given back as it came was not."""
        library = library_of(self.function)
        names = [name for name in rows.column_names if not name.startswith("__midstream_")]
        given = {name: from_arrow(state.table, library) for name, state in old.items()}
        try:
            state = given if self.named else given[STATE]
            result = self.function(from_arrow(rows.select(names), library), state, *self.more)
        except Exception as cause:
            raise user_error(self.step, self.function, cause) from cause
        output, new_state = self._unpacked(result)
        return output, {
            name: update for name, update in new_state.items() if update is not None and update is not given[name]
        }

    def _unpacked(self, result: Any) -> tuple[Any, Mapping[str, Any]]:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._wrong("a pair (output, new_state)", f"a {type(result).__qualname__}")
        output, new_state = result
        if not self.named:
            return output, {STATE: new_state}
        if not isinstance(new_state, Mapping) or not set(new_state) <= {spec.name for spec in self.tables}:
            known = ", ".join(spec.name for spec in self.tables)
            raise self._wrong(f"new state as a dict with the tables {known}", repr(new_state)[:200])
        return output, new_state

    def _delta(self, spec: TableSpec, groups: Groups, old: _Old, update: Any) -> TableDelta:
        if not isinstance(update, TableUpdate):
            update = TableUpdate(rows=update)
        if update.append is not None:
            if spec.kind is not TableKind.LIST or update.rows is not None:
                raise self._wrong("`append` alone, on a list table", f"it for table '{spec.name}'")
            delta = self._appended(spec, groups, update.append)
        elif update.rows is not None:
            delta = self._replaced(spec, groups, old, update.rows)
        else:
            none = np.empty(0, dtype=np.int64)
            empty = spec.schema.empty_table()
            delta = TableDelta(none, empty.select(spec.keys.names), empty.select(spec.values.names))
        if update.delete_below is None:
            return delta
        return TableDelta(**{**delta.__dict__, "delete_below": self._bound(spec, update.delete_below)})

    def _placed(self, spec: TableSpec, groups: Groups, frame: Any) -> tuple[pa.Table, Positions]:
        """Rows of a returned state in the order of their groups, with the group of each."""
        table = self._checked(frame, spec.schema, f"the new state of table '{spec.name}'")
        group = match_groups(groups.keys, table.select(spec.keys.names))
        if (group < 0).any():
            stranger = table.select(spec.keys.names).slice(int(np.argmin(group)), 1).to_pylist()[0]
            raise self._wrong("state for keys of this epoch only", f"state for the key {stranger}")
        order = np.argsort(group, kind="stable")
        return table.take(pa.array(order)), group[order]

    def _appended(self, spec: TableSpec, groups: Groups, frame: Any) -> TableDelta:
        table, group = self._placed(spec, groups, frame)
        return TableDelta(
            groups.hashes[group],
            table.select(spec.keys.names),
            table.select(spec.values.names),
            added=len(group),
        )

    def _replaced(self, spec: TableSpec, groups: Groups, old: _Old, frame: Any) -> TableDelta:
        table, group = self._placed(spec, groups, frame)
        given = np.bincount(group, minlength=len(groups))
        if spec.kind is TableKind.VALUE:
            if (given > 1).any():
                twice = groups.keys.slice(int(np.argmax(given > 1)), 1).to_pylist()[0]
                raise self._wrong("one state row a key", f"several for the key {twice}")
            gone = np.flatnonzero((old.counts > 0) & (given == 0))
            added = int(((old.counts == 0) & (given > 0)).sum())
            removed = len(gone)
        else:
            gone = np.flatnonzero(old.counts > 0)
            added, removed = len(group), int(old.counts.sum())
        owner = np.concatenate([gone, group])
        order = np.argsort(owner, kind="stable")
        keys = pa.concat_tables([groups.keys.take(pa.array(gone)).cast(spec.keys), table.select(spec.keys.names)])
        nullable = pa.schema([f.with_nullable(True) for f in spec.values])
        nothing = pa.Table.from_arrays([pa.nulls(len(gone), f.type) for f in nullable], schema=nullable)
        values = pa.concat_tables([nothing, table.select(spec.values.names).cast(nullable)])
        deleted: Mask = (np.arange(len(owner)) < len(gone))[order]
        return TableDelta(
            groups.hashes[owner[order]],
            keys.take(pa.array(order)),
            values.take(pa.array(order)) if values.num_columns else values,
            deleted,
            added=added,
            removed=removed,
        )

    def _bound(self, spec: TableSpec, below: Any) -> Any:
        if spec.range_column is None:
            raise self._wrong("`delete_below` only for a table with a range column", f"it for table '{spec.name}'")
        type_ = spec.schema.field(spec.range_column).type
        try:
            return to_orderable(pa.array([below], type_))[0].as_py()
        except (TypeError, ValueError, pa.ArrowException) as cause:
            raise self._wrong(f"`delete_below` of type {type_} for table '{spec.name}'", repr(below)) from cause

    def _checked(self, frame: Any, schema: pa.Schema, what: str) -> pa.Table:
        return checked(self.step, self.function, frame, schema, what)

    def _wrong(self, expected: str, given: str) -> UserFunctionError:
        return UserFunctionError.wrong_result(self.step, describe(self.function), expected, given)


@dataclass(frozen=True)
class _Old:
    """The old rows of a table for this epoch's keys: keys then values, and how many rows each key has."""

    table: pa.Table
    counts: Positions

    @classmethod
    def read(cls, spec: TableSpec, groups: Groups, snapshot: Snapshot) -> _Old:
        if spec.kind is TableKind.VALUE:
            found = snapshot.lookup(spec.name, groups.hashes, groups.keys)
            owner, values = np.flatnonzero(found.found), found.values.filter(pa.array(found.found))
            counts = found.found.astype(np.int64)
        else:
            rows = snapshot.lookup_rows(spec.name, groups.hashes, groups.keys)
            owner, values = rows.owner, rows.values
            counts = np.bincount(owner, minlength=len(groups))
        keys = groups.keys.take(pa.array(owner))
        table = pa.Table.from_arrays([*keys.columns, *values.columns], names=spec.schema.names)
        return cls(table, counts)


@dataclass(frozen=True)
class PerKey:
    """Makes a table function of `fn(key, rows, state) -> (outputs, new_state)`: convenient, not fast."""

    function: Callable[..., Any]
    keys: tuple[str, ...]
    values: tuple[str, ...]
    state_schema: pa.Schema
    output_schema: pa.Schema

    def __call__(self, rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        old = {self._key(row): {name: row[name] for name in self.values} for row in state.to_pylist()}
        by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        spelled: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for row in rows.to_pylist():
            key = self._key(row)
            spelled.setdefault(key, tuple(row[name] for name in self.keys))
            by_key.setdefault(key, []).append(row)
        outputs: list[dict[str, Any]] = []
        states: list[dict[str, Any]] = []
        for key, members in by_key.items():
            output, new_state = self.function(spelled[key], members, old.get(key))
            outputs.extend(output)
            if new_state is not None:
                states.append({**dict(zip(self.keys, spelled[key], strict=True)), **new_state})
        return (
            pa.Table.from_pylist(outputs, self.output_schema),
            pa.Table.from_pylist(states, self.state_schema),
        )

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        from midstream.state.keys import canonical_value

        return tuple(canonical_value(row[name]) for name in self.keys)


def checked(step: str, function: Callable[..., Any], frame: Any, schema: pa.Schema, what: str) -> pa.Table:
    """What a function gave as a table of the schema it promised."""
    try:
        return to_arrow(frame, schema)
    except (TypeError, ValueError, pa.ArrowException) as cause:
        columns = ", ".join(f"{field.name} {field.type}" for field in schema)
        expected = f"{what} with the columns ({columns})"
        raise UserFunctionError.wrong_result(step, describe(function), expected, str(cause)) from cause


def describe(function: Callable[..., Any]) -> str:
    """A function by name, file and line, as an error should name it."""
    target = inspect.unwrap(function.function if isinstance(function, PerKey) else function)
    code = getattr(target, "__code__", None)
    name = getattr(target, "__qualname__", repr(target))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def user_error(step: str, function: Callable[..., Any], cause: Exception) -> UserFunctionError:
    """The error for an exception out of a user's function, naming the line in the user's own file."""
    target = function.function if isinstance(function, PerKey) else function
    return UserFunctionError.raised(step, describe(function), raised_at(cause, target), cause)


def raised_at(cause: Exception, function: Callable[..., Any]) -> str:
    """File and line an exception came from: the innermost in the function's own file, for the rest is libraries."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = traceback.extract_tb(cause.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or frames
    return f"{own[-1].filename}:{own[-1].lineno}"


__all__ = [
    "STATE",
    "Library",
    "PerKey",
    "TableUpdate",
    "UserFunction",
    "checked",
    "describe",
    "raised_at",
    "user_error",
]
