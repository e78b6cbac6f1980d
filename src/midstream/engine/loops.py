"""Rows that go round in a loop: staged by one epoch and named in its manifest, read by the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.engine.internals import empty_frame, map_in_arrow, slots
from midstream.graph.pipeline import Pipeline
from midstream.schemas import to_arrow
from midstream.state.manifest import Manifest, StagedFile
from midstream.state.store import Store
from midstream.task.reread import ReadStaged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from midstream.engine.version import Version


@dataclass(frozen=True)
class Returned:
    """What was fed back into a loop, as it lies there."""

    store: Store
    files: tuple[StagedFile, ...]

    def frame(self, spark: SparkSession, schema: StructType) -> DataFrame:
        if not self.files:
            return empty_frame(spark, schema)
        tasks = min(len(self.files), slots(spark))
        numbers = spark.range(0, len(self.files), 1, tasks)
        return map_in_arrow(numbers, ReadStaged(self.store, self.files, to_arrow(schema)), schema, reads=["id"])


def returned(version: Version, last: Manifest) -> dict[str, Returned]:
    """By loop, what enters it in the epoch behind the last one."""
    return {
        step.to: Returned(version.contexts[step.id].staging, last.sinks.get(step.id, ()))
        for step in version.compiled.pipeline.feedbacks
    }


def rows_under_way(pipeline: Pipeline, last: Manifest) -> dict[str, int]:
    """By loop, how many rows are in it."""
    return {step.to: sum(file.rows for file in last.sinks.get(step.id, ())) for step in pipeline.feedbacks}
