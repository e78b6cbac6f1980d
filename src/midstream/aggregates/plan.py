"""The plan of an aggregate step: what Catalyst computes before the exchange, what the state task does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.aggregates.analysis import analyse
from midstream.aggregates.build import Builder
from midstream.aggregates.distinct import DistinctCount
from midstream.aggregates.function import AggregateFunction
from midstream.aggregates.partial import Partial
from midstream.aggregates.shipment import Shipment
from midstream.aggregates.spec import AggregateSpec
from midstream.state.hashspace import SUBKEY_BITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class AggregatePlan:
    """One step planned for both ways its rows may travel; the results are the same.

    Grouped: `groupBy(keys).agg(*grouped_sql, count(1) AS __rows)`, only when `supports_grouped`.
    Per row: `select(keys, *per_row_sql)`.
    """

    grouped_sql: tuple[str, ...]
    grouped_names: tuple[str, ...]
    per_row_sql: tuple[str, ...]
    supports_grouped: bool
    function: AggregateFunction
    output_schema: StructType
    part_sql: str | None = None
    """Of each row, as it travels, a number that says which part of its key it goes to."""
    indivisible: str | None = None
    """Why keys cannot be in parts."""
    span: int | None = None
    """Of sessions: microseconds within which rows of a key are of one session whatever else comes. They are always
    aggregated before they are kept."""


def plan_aggregates(
    input_df: DataFrame,
    keys: Sequence[str],
    specs: Sequence[AggregateSpec],
    complete: bool,
    range_column: str | None = None,
    kept: bool = False,
) -> AggregatePlan:
    """Plan aggregates by key over rows like those of `input_df`, of which only the schema matters. By `range_column`,
    one of the keys, old keys are deleted in bulk. `kept`: what is shipped is kept as it is, to be aggregated later."""
    analysis = analyse(input_df, keys, specs)
    builder = Builder(analysis, complete, shipment=Shipment(kept=kept))
    finishes = tuple(builder.add(aggregate) for aggregate in analysis.aggregates)
    partials = tuple(builder.partials.values())
    function = AggregateFunction(analysis.keys, partials, finishes, analysis.output, complete, range_column)
    shipment = builder.shipment
    part_sql, indivisible = _parts(partials, shipment)
    return AggregatePlan(
        shipment.grouped_sql() if shipment.supports_grouped else (),
        shipment.grouped_names() if shipment.supports_grouped else (),
        shipment.per_row_sql(),
        shipment.supports_grouped,
        function,
        analysis.output_schema,
        part_sql,
        indivisible,
    )


def _parts(partials: Sequence[Partial], shipment: Shipment) -> tuple[str | None, str | None]:
    """How rows of a key are divided, or why they cannot be. The same row must always go the same way, for a task may
    run again: by the values of which distinct ones are counted, or by the task that has aggregated them before the
    exchange."""
    for partial in partials:
        if not partial.mergeable:
            return None, f"{getattr(partial, 'name', 'it')} depends on the order of rows, or keeps all of them"
    hashes = {partial.hash.per_row for partial in partials if isinstance(partial, DistinctCount)}
    if len(hashes) > 1:
        return None, "it counts the distinct values of different columns"
    if not hashes:
        return "spark_partition_id()", None
    (name,) = hashes
    sql = next(sql for sql, shipped in shipment.per_row.items() if shipped == name)
    return f"({sql} & {2**SUBKEY_BITS - 1}L)", None
