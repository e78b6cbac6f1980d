"""Jobs of a thread that can be told from all others, and cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from midstream.engine.connect.offers import cancel_epoch
from midstream.engine.connect.session import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NamedJobs:
    """While it is entered, what this thread has Spark do has a name."""

    def __init__(self, spark: SparkSession, name: str, description: str) -> None:
        self._spark = spark
        self._name = name
        self._description = description

    def __enter__(self) -> Self:
        if is_remote(self._spark):
            self._spark.addTag(self._name)
        else:
            self._spark.sparkContext.setJobGroup(self._name, self._description, interruptOnCancel=True)
        return self

    def __exit__(self, *_: object) -> None:
        if is_remote(self._spark):
            self._spark.removeTag(self._name)
        else:
            for name in ("spark.jobGroup.id", "spark.job.description"):
                self._spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]

    def cancel(self) -> None:
        """From any thread: end those that run."""
        if is_remote(self._spark):
            self._spark.interruptTag(self._name)
        else:
            self._spark.sparkContext.cancelJobGroup(self._name)


def canceller(spark: SparkSession) -> Callable[[], object] | None:
    """How to cancel what Spark does for the epoch this thread runs, if that can be told from all else."""
    if is_remote(spark):
        return cancel_epoch.get()
    context = spark.sparkContext
    group = context.getLocalProperty("spark.jobGroup.id")
    return (lambda: context.cancelJobGroup(group)) if group is not None else None
