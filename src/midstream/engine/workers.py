"""Spark's Python workers after a failure. One that raised or was interrupted is gone, and starting another takes about
a second for Python and its libraries, which the stream's next epoch is not to pay."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from midstream.engine.compile import Compiled
from midstream.engine.internals import JVM_GONE, map_in_arrow, run_job, slots
from midstream.engine.jobs import NamedJobs
from midstream.engine.limits import TimeLimit
from midstream.schemas import NOTHING
from midstream.task.ready import BeReady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0


def replace_lost(spark: SparkSession, compiled: Compiled, jobs: NamedJobs) -> None:
    """Wait until a worker is ready for a pipeline in every task slot again; the job is one of those named.

    What goes wrong here shall not hide the failure it was called for.
    """
    wanted = slots(spark)
    task = BeReady(tuple(keyed.function for keyed in compiled.keyed.values()))
    try:
        with TimeLimit(jobs.cancel, _PATIENCE_SECONDS):
            run_job(map_in_arrow(spark.range(0, wanted, 1, wanted), task, NOTHING, together=True))
    except (PySparkException, *JVM_GONE) as error:
        _logger.warning("Python workers were not started again after a failed trial: %s", error)
