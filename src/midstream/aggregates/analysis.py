"""Asking Catalyst for the types of aggregates and of their arguments; the DataFrame need not hold a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from midstream.aggregates.spec import AggregateSpec
from midstream.errors import GraphError
from midstream.schemas import quoted, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Typed:
    """An SQL expression with its type, as Arrow and as SQL has it."""

    sql: str
    type: pa.DataType
    sql_type: str
    nullable: bool = True


@dataclass(frozen=True)
class Analysed:
    """An aggregate that fits its input. A fold's arguments are its columns, `state` is its accumulator."""

    spec: AggregateSpec
    arguments: tuple[Typed, ...]
    result: Typed
    state: Typed


@dataclass(frozen=True)
class Analysis:
    """The keys, the aggregates and the schema of the result, exactly as batch Spark would give it."""

    keys: pa.Schema
    aggregates: tuple[Analysed, ...]
    output: pa.Schema
    output_schema: StructType


def analyse(input_df: DataFrame, keys: Sequence[str], specs: Sequence[AggregateSpec]) -> Analysis:
    """Analyse aggregates over a DataFrame; an error names the aggregate that does not fit."""
    try:
        return _analyse(input_df, keys, specs)
    except PySparkException:
        for spec in specs:
            try:
                _analyse(input_df, keys, [spec])
            except PySparkException as cause:
                reason = str(cause).strip().partition("\n")[0]
                raise GraphError.aggregate_not_analysed(spec.name, _shown(spec), reason) from cause
        raise


def _analyse(input_df: DataFrame, keys: Sequence[str], specs: Sequence[AggregateSpec]) -> Analysis:
    key_fields = [input_df.schema[key] for key in keys]
    results = input_df.selectExpr(*(f"{spec.sql} AS {quoted(spec.name)}" for spec in specs)).schema
    texts = {text: None for spec in specs for text in _inputs(spec)}
    typed: dict[str, Typed] = {}
    if texts:
        # Numbered names, because an expression may be no name, and two may differ in case only.
        selected = input_df.selectExpr(*(f"{text} AS _{i}" for i, text in enumerate(texts))).schema
        typed = {text: _typed(text, field) for text, field in zip(texts, selected, strict=True)}
    aggregates = tuple(
        Analysed(
            spec,
            tuple(typed[text] for text in spec.arguments if text != "*"),
            _typed(spec.sql, result),
            typed[_state(spec)] if spec.fold else _typed(spec.sql, result),
        )
        for spec, result in zip(specs, results, strict=True)
    )
    output = StructType([*key_fields, *results.fields])
    # State does not care whether a key may be null, so that a source may change its mind about it.
    state_keys = StructType([StructField(field.name, field.dataType) for field in key_fields])
    return Analysis(to_arrow(state_keys), aggregates, to_arrow(output), output)


def _inputs(spec: AggregateSpec) -> tuple[str, ...]:
    arguments = tuple(text for text in spec.arguments if text != "*")
    return (*arguments, _state(spec)) if spec.fold else arguments


def _state(spec: AggregateSpec) -> str:
    return f"CAST(NULL AS {spec.fold.type})" if spec.fold else ""


def _shown(spec: AggregateSpec) -> str:
    return f"a fold over {', '.join(spec.arguments)}" if spec.fold else spec.sql


def _typed(sql: str, field: StructField) -> Typed:
    arrow = to_arrow(StructType([StructField("_", field.dataType)])).field(0).type
    return Typed(sql, arrow, field.dataType.simpleString(), field.nullable)
