"""The plan of an aggregate step: what Catalyst computes before the exchange, what the state task does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.aggregates.analysis import analyse
from midstream.aggregates.build import Builder
from midstream.aggregates.function import AggregateFunction
from midstream.aggregates.shipment import Shipment
from midstream.aggregates.spec import AggregateSpec

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
    return AggregatePlan(
        shipment.grouped_sql() if shipment.supports_grouped else (),
        shipment.grouped_names() if shipment.supports_grouped else (),
        shipment.per_row_sql(),
        shipment.supports_grouped,
        function,
        analysis.output_schema,
    )
