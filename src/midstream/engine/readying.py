"""Executors that have no instances do next to nothing at first: one task, so that what comes later begins at once.

The first task of an executor fetches the application's files and loads Spark's classes, and the first that runs Python
starts it and loads our libraries. On busy cores that took seconds, and state that was to move waited for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from midstream.engine.cluster import Cluster
from midstream.engine.internals import map_in_arrow, run_job
from midstream.engine.jobs import NamedJobs
from midstream.schemas import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

READYING = "midstream readies executor "


def make_ready(
    spark: SparkSession, cluster: Cluster, executors: Sequence[str], pause: Callable[[], bool] = lambda: True
) -> None:
    """Have each executor run a task, one after the other. A `pause` comes before each, and says whether to go on."""
    location = {executor.id: executor.location for executor in cluster.executors()}
    for executor in executors:
        if not pause():
            return
        if executor in location:
            one = cluster.placed(spark.range(0, 1, 1, 1), [location[executor]])
            with NamedJobs(spark, f"midstream-readying-{uuid.uuid4().hex}", f"{READYING}{executor}"):
                run_job(map_in_arrow(one, _load, NOTHING))


def _load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import midstream.state.warmup_worker
    import midstream.task.keyed  # noqa: F401

    for _ in batches:
        pass
    yield from ()
