"""Tables in the library the user's function is written for: pyarrow, polars or pandas, told by its type hints."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pyarrow as pa


class Library(StrEnum):
    PYARROW = "pyarrow"
    POLARS = "polars"
    PANDAS = "pandas"


def library_of(function: Callable[..., Any]) -> Library:
    """The library of the first parameter's type hint; pyarrow when there is none."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # a name that only the type checker imports has no value: the text of the hint must do
        signature = inspect.signature(function)
    hint = next((parameter.annotation for parameter in signature.parameters.values()), None)
    name = hint if isinstance(hint, str) else f"{getattr(hint, '__module__', '')}.{getattr(hint, '__name__', '')}"
    for library, marks in ((Library.POLARS, ("polars.", "pl.")), (Library.PANDAS, ("pandas.", "pd."))):
        if name.startswith(marks):
            return library
    return Library.PYARROW


def from_arrow(table: pa.Table, library: Library) -> Any:
    if library is Library.POLARS:
        import polars

        return polars.from_arrow(table)
    if library is Library.PANDAS:
        return table.to_pandas()
    return table


def to_arrow(frame: Any, schema: pa.Schema) -> pa.Table:
    """A frame of any of the libraries as an Arrow table of the schema. Raises `TypeError` or `pa.ArrowException`."""
    table = _as_table(frame, schema)
    missing = [name for name in schema.names if name not in table.column_names]
    extra = [name for name in table.column_names if name not in schema.names]
    if missing or extra:
        raise TypeError(f"columns {table.column_names}")
    return table.select(schema.names).cast(schema)


def _as_table(frame: Any, schema: pa.Schema) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    module = type(frame).__module__.partition(".")[0]
    if module == "polars":
        return frame.to_arrow()
    if module == "pandas":
        known = [field for field in schema if field.name in frame.columns]
        table = pa.Table.from_pandas(frame[[f.name for f in known]], pa.schema(known), preserve_index=False)
        return table if len(known) == len(frame.columns) else pa.Table.from_pandas(frame, preserve_index=False)
    raise TypeError(f"a {type(frame).__qualname__}")
