"""Changes without objects of a Spark session in them, so that they can be kept and run by any later driver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column

from midstream.changes.change import Change, ChangeSet, Insert, Replace
from midstream.engine.columns import to_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def portable(change: Change, spark: SparkSession) -> Change:
    """The same change with aggregates as SQL text: a `Column` lives in one session."""
    if isinstance(change, ChangeSet):
        return ChangeSet([portable(part, spark) for part in change.changes])
    if isinstance(change, Replace | Insert) and change.aggregate is not None:
        aggregates = {
            name: to_spec(name, given, spark).sql if isinstance(given, Column) else given
            for name, given in change.aggregate.items()
        }
        return replace(change, aggregate=aggregates)
    return change
