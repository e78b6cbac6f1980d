"""DataFrames and schemas that are the same in every epoch, asked of Spark once: each question costs milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from midstream.engine.internals import empty_frame, same_session
from midstream.schemas import quoted, to_arrow
from midstream.state.hashspace import HashRange
from midstream.task.keyed import HASH_COLUMN, WAKE_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Reused:
    """What a version of the pipeline keeps from epoch to epoch, for the session its query runs in."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._inputs: dict[tuple[str, bool, bool], pa.Schema] = {}
        self.shipped: dict[str, StructType] = {}
        """By step, the columns that reach its state tasks, as they last did."""
        self._empty: dict[str, DataFrame] = {}
        self._wakes: dict[tuple[str, bool], tuple[Sequence[HashRange], DataFrame]] = {}

    def input(self, step: str, grouped: bool, woken: bool, rows: DataFrame) -> pa.Schema:
        """The schema of what reaches the state tasks of a step."""
        known = self._inputs.get((step, grouped, woken))
        if known is None:
            self.shipped[step] = rows.schema
            known = self._inputs[step, grouped, woken] = to_arrow(rows.schema)
        return known

    def nothing(self, step: str, spark: SparkSession, schema: StructType) -> DataFrame:
        """What a step gives when it gives no rows."""
        self._of(spark)
        if step not in self._empty:
            self._empty[step] = empty_frame(spark, schema)
        return self._empty[step]

    def wakes(
        self, step: str, grouped: bool, spark: SparkSession, ranges: Sequence[HashRange], like: Callable[[], DataFrame]
    ) -> DataFrame:
        """A row for each partition of a step, in a partition of its own, which tells the task there who it is. It has
        the columns of the rows the task gets."""
        self._of(spark)
        known = self._wakes.get((step, grouped))
        if known is None or list(known[0]) != list(ranges):
            known = self._wakes[step, grouped] = (tuple(ranges), _wakes(spark, ranges, like().schema))
        return known[1]

    def _of(self, spark: SparkSession) -> None:
        if self._spark is None or not same_session(self._spark, spark):
            self._spark, self._empty, self._wakes = spark, {}, {}


def _wakes(spark: SparkSession, ranges: Sequence[HashRange], schema: StructType) -> DataFrame:
    starts = F.array(*(F.lit(r.start) for r in ranges))
    columns = [
        F.element_at(starts, (F.col("id") + 1).cast("int")).alias(HASH_COLUMN)
        if field.name == HASH_COLUMN
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in schema
        if field.name != WAKE_COLUMN
    ]
    return spark.range(0, len(ranges), 1, len(ranges)).select(*columns, F.lit(True).alias(WAKE_COLUMN))


def asleep(rows: DataFrame) -> DataFrame:
    """Rows of the stream, told from those that wake tasks."""
    return rows.selectExpr(*map(quoted, rows.columns), f"false AS {WAKE_COLUMN}")
