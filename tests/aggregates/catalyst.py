"""The few SQL expressions that plans consist of, evaluated in plain Python over columns `k`, `x` and the filter `c`.

It stands in for Catalyst where thousands of examples are tried; `test_against_spark.py` runs the same plans on Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from midstream.aggregates.analysis import Analysed, Analysis, Typed
from midstream.aggregates.build import Builder
from midstream.aggregates.function import AggregateFunction
from midstream.aggregates.partial import ROWS
from midstream.aggregates.shipment import Shipment
from midstream.aggregates.spec import AggregateSpec
from tests.aggregates.memory import hashable, key_hash

KEYS = pa.schema([pa.field("k", pa.int64())])
SQL_TYPES = {pa.int64(): "bigint", pa.int32(): "int", pa.float64(): "double", pa.string(): "string"}


@dataclass(frozen=True)
class Row:
    k: int | None
    x: Any
    c: bool | None = True


@dataclass(frozen=True)
class Planned:
    """A plan made without Spark, for aggregates of `x`."""

    function: AggregateFunction
    shipment: Shipment
    x: pa.DataType

    def per_row(self, rows: Sequence[Row]) -> pa.Table:
        return self._table(rows, {n: (s, [_scalar(s, row) for row in rows]) for s, n in self.shipment.per_row.items()})

    def grouped(self, rows: Sequence[Row]) -> pa.Table:
        """The partial rows of one task."""
        by_key: dict[Any, list[Row]] = {}
        for row in rows:
            by_key.setdefault(row.k, []).append(row)
        groups = list(by_key.values())
        columns = {n: (s, [_aggregate(s, g) for g in groups]) for s, n in self.shipment.grouped.items()}
        columns[ROWS] = ("count(1)", [len(g) for g in groups])
        return self._table([g[0] for g in groups], columns)

    def _table(self, rows: Sequence[Row], columns: dict[str, tuple[str, list[Any]]]) -> pa.Table:
        arrays = {"k": pa.array([row.k for row in rows], pa.int64())}
        for name, (sql, values) in columns.items():
            arrays[name] = pa.array(values, self._type(sql))
        return pa.table(arrays)

    def _type(self, sql: str) -> pa.DataType:
        if "TRUE" in sql and not sql.startswith("count"):
            return pa.bool_()
        if decimal := re.search(r"AS decimal\((\d+),(\d+)\)", sql):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if sql.startswith(("avg", "var_pop")) or ("AS double" in sql and not sql.startswith("count")):
            return pa.float64()
        if sql.startswith(("count", "xxhash64")) or "AS bigint" in sql:
            return pa.int64()
        if sql.startswith("sum"):
            return next(field.type for field in self.function.tables[0].values if field.name == sql)
        return self.x


def plan(spec: AggregateSpec, x: pa.DataType, result: pa.DataType, complete: bool = False) -> Planned:
    """Plan one aggregate of a nullable column `x` of this type."""
    argument = Typed("x", x, _sql_type(x))
    arguments = () if spec.arguments == ("*",) else (argument,) * len(spec.arguments)
    results = Typed(spec.sql, result, _sql_type(result))
    state = Typed("", x, _sql_type(x)) if spec.fold else results
    aggregate = Analysed(spec, arguments, results, state)
    output = pa.schema([*KEYS, pa.field(spec.name, result)])
    builder = Builder(Analysis(KEYS, (aggregate,), output, None), complete)  # type: ignore[arg-type]
    finish = builder.add(aggregate)
    function = AggregateFunction(KEYS, tuple(builder.partials.values()), (finish,), output, complete)
    return Planned(function, builder.shipment, x)


def _sql_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return SQL_TYPES.get(type_, str(type_))


def _scalar(sql: str, row: Row) -> Any:
    if case := re.fullmatch(r"CASE WHEN (.+) THEN (.+) END", sql):
        holds = all(_condition(part, row) for part in case[1].split(" AND "))
        return _scalar(case[2], row) if holds else None
    if cast := re.fullmatch(r"CAST\((.+) AS (\w+).*\)", sql):
        value = _scalar(cast[1], row)
        return float(value) if cast[2] == "double" and value is not None else value
    if sql.startswith("xxhash64"):
        return key_hash(hashable(row.x)) % 4  # values collide
    return {"x": row.x, "TRUE": True, "1": 1}[sql]


def _condition(text: str, row: Row) -> bool:
    if text == "(x) IS NOT NULL":
        return row.x is not None
    assert text in ("c", "(c)"), text
    return row.c is True


def _aggregate(sql: str, rows: list[Row]) -> Any:
    call = re.fullmatch(r"(\w+)\((.*?)(, true)?\)( FILTER \(WHERE c\))?", sql)
    assert call is not None, sql
    counted = [row for row in rows if row.c is True] if call[4] else rows
    values = [_scalar(call[2], row) for row in counted]
    if call[1] in ("first", "last") and not call[3]:
        return values[0 if call[1] == "first" else -1] if values else None
    return AGGREGATES[call[1]]([value for value in values if value is not None])


def unless_empty(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: function(values) if values else None


def add_up(values: list[Any]) -> Any:
    if isinstance(values[0], float):
        return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
    return sum(values)


def order(value: Any) -> Any:
    """A sort key in Spark's order: NaN last, null first, strings by bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, dict):
        return (1, tuple(order(v) for v in value.values()))
    if isinstance(value, list):
        return (1, tuple(order(v) for v in value))
    return (1, value)


def variance(values: list[float], sample: bool = False) -> float | None:
    count = len(values) - 1 if sample else len(values)
    if count < 1:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / count


def mean(values: list[Any]) -> Any:
    return add_up(values) / len(values)


AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": unless_empty(add_up),
    "avg": unless_empty(lambda values: float(mean(values)) if not isinstance(values[0], Decimal) else mean(values)),
    "var_pop": unless_empty(variance),
    "min": unless_empty(lambda values: min(values, key=order)),
    "max": unless_empty(lambda values: max(values, key=order)),
    "first": unless_empty(lambda values: values[0]),
    "last": unless_empty(lambda values: values[-1]),
}
