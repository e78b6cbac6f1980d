"""Changes without objects of a Spark session in them, so that they can be kept and run by any later driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column

from midstream.changes.change import Change, ChangeSet, Insert, Replace, Tune
from midstream.engine.columns import to_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def portable(change: Change, spark: SparkSession, rows_per_file: Callable[[], Mapping[str, float]]) -> Change:
    """The same change with aggregates as SQL text, for a `Column` lives in one session, and with what was measured."""
    if isinstance(change, ChangeSet):
        return ChangeSet([portable(part, spark, rows_per_file) for part in change.changes])
    if isinstance(change, Tune) and change.rows_per_epoch is not None and change.rows_per_file is None:
        return replace(change, rows_per_file=rows_per_file())
    if isinstance(change, Replace | Insert) and change.aggregate is not None:
        aggregates = {
            name: to_spec(name, given, spark).sql if isinstance(given, Column) else given
            for name, given in change.aggregate.items()
        }
        return replace(change, aggregate=aggregates)
    return change
