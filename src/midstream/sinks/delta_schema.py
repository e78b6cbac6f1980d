"""How a stream's columns fit a Delta table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from midstream.errors import SinkError
from midstream.sinks.columns import relaxed_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema


def to_delta(schema: pa.Schema) -> Schema:
    """The schema of a new table: all columns nullable, timestamps in UTC."""
    from deltalake import Schema

    for field in relaxed_schema(schema):
        if _holds_null_type(field.type):
            raise SinkError.unsupported_type("Delta Lake", field.name, field.type)
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as error:  # deltalake has no narrower class for this
            raise SinkError.unsupported_type("Delta Lake", field.name, field.type) from error
    return Schema.from_arrow(relaxed_schema(schema))


def check_columns(table: DeltaTable, coming: Schema, target: str) -> None:
    """Every column of the stream is in the table with its type; columns only the table has become null."""
    there = {field.name: field for field in table.schema().fields}
    names = {field.name for field in coming.fields}
    problems = []
    for field in coming.fields:
        if field.name not in there:
            problems.append(f"column '{field.name}' is not in the table")
        elif _shape(field.type) != _shape(there[field.name].type):
            problems.append(
                f"column '{field.name}' is {_type_name(there[field.name].type)} in the table"
                f" and {_type_name(field.type)} in the stream"
            )
    problems += [
        f"column '{field.name}' of the table is NOT NULL and not in the stream"
        for field in there.values()
        if not field.nullable and field.name not in names
    ]
    if problems:
        raise SinkError.schema_mismatch(
            target,
            problems,
            "select and cast columns in a step before the sink, or alter the table"
            " (DeltaTable(...).alter.add_columns(...)).",
        )


def takes_files(table: DeltaTable) -> bool:
    """Whether files written by tasks may be logged as they are: nothing to split, check or compute per row."""
    fields = table.schema().fields
    configuration = table.metadata().configuration
    return not (
        table.metadata().partition_columns
        or any(not field.nullable for field in fields)
        or any(key.startswith(("delta.generationExpression", "delta.identity")) for f in fields for key in f.metadata)
        or any(key.startswith("delta.constraints.") for key in configuration)
        or table.schema().invariants
        or configuration.get("delta.columnMapping.mode", "none") != "none"
    )


def fill_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the table's columns in the table's order; those it lacks are null."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _holds_null_type(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_null_type(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_null(kind)  # type: ignore[no-any-return]


def _shape(kind: Any) -> Any:
    """A Delta type without nullability and metadata."""

    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            ignored = ("nullable", "containsNull", "valueContainsNull", "metadata")
            return {key: strip(value) for key, value in node.items() if key not in ignored}
        return [strip(item) for item in node] if isinstance(node, list) else node

    return strip(json.loads(kind.to_json()))


def _type_name(kind: Any) -> str:
    name = json.loads(kind.to_json())
    return name if isinstance(name, str) else json.dumps(_shape(kind))
