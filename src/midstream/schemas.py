"""Schemas between Spark and Arrow, and what the user may give as one."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from midstream.errors import GraphError

if TYPE_CHECKING:
    from midstream.graph.steps import Schema


NOTHING = StructType([StructField("nothing", IntegerType())])
"""Schema of a task that sends no rows on: its work is in what it did."""


def to_arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema rows of a Spark schema arrive in; timestamps in UTC."""
    # Before 4.2 there was no such parameter, and UTC was what one got.
    utc: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **utc)


def to_spark(step: str, what: str, given: Schema) -> StructType:
    """A schema given as DDL, StructType or Arrow schema, as Spark's."""
    if isinstance(given, StructType):
        return given
    try:
        if isinstance(given, pa.Schema):
            return from_arrow_schema(given)
        parsed = DataType.fromDDL(given)
    except (PySparkException, TypeError, ValueError, AttributeError, AssertionError) as cause:
        raise GraphError.bad_schema(step, what, given, str(cause).strip().partition("\n")[0]) from cause
    if not isinstance(parsed, StructType):
        raise GraphError.bad_schema(step, what, given, "it has no column names")
    return parsed


def quoted(column: str) -> str:
    """A column's name as SQL takes it, whatever is in it.

    >>> quoted("a `b`")
    '`a ``b```'
    """
    return "`" + column.replace("`", "``") + "`"


_KEYS = (
    types.BooleanType,
    types.IntegralType,
    types.FractionalType,
    types.StringType,
    types.BinaryType,
    types.DateType,
    types.TimestampType,
    types.TimestampNTZType,
    types.TimeType,
    types.DayTimeIntervalType,
)
"""Types whose equality outside of Spark is the one inside. Arrow does not have the others, or only their parts."""


def is_keyable(type_: DataType) -> bool:
    """Whether values of the type can be keys."""
    if isinstance(type_, StructType):
        return all(is_keyable(field.dataType) for field in type_.fields)
    if isinstance(type_, types.ArrayType):
        return is_keyable(type_.elementType)
    # Any other collation takes different texts for the same.
    return isinstance(type_, _KEYS) and getattr(type_, "collation", "UTF8_BINARY") == "UTF8_BINARY"


def differences(before: pa.Schema, after: pa.Schema) -> str:
    """How two schemas differ, column by column; empty when they do not."""
    old = {field.name: field.type for field in before}
    new = {field.name: field.type for field in after}
    told = [f"'{name}' is gone" for name in old if name not in new]
    told += [f"'{name}' is new" for name in new if name not in old]
    told += [f"'{n}' was {old[n]}, is {new[n]}" for n in old if n in new and old[n] != new[n]]
    return "; ".join(told)
