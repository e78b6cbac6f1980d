"""The few facts about Spark's inside that midstream leans on, each with a test that tells when a version breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH_CONF = {
    # Spark's default manager forks shell commands for permissions on a local file system: ~60 ms an epoch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Adaptive execution may coalesce the partitions of a keyed step and plans every epoch twice.
    "spark.sql.adaptive.enabled": "false",
    # Fewer, larger batches on the way to the state tasks.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""Settings of the query's own (cloned) session; the user's session keeps what it had."""


def read_offsets(spark_log: Path, epoch: int) -> str:
    """The text of Spark's offset log for an epoch: written before the epoch runs, so it is always there."""
    return (spark_log / "offsets" / str(epoch)).read_text()


class SessionConf:
    """Set configuration on a session for the length of a `with`, then put back what was there."""

    def __init__(self, spark: SparkSession, settings: dict[str, str]) -> None:
        self._spark = spark
        self._settings = settings
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for key, value in self._settings.items():
            self._before[key] = self._spark.conf.get(key, None)
            self._spark.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, before in self._before.items():
            if before is None:
                self._spark.conf.unset(key)
            else:
                self._spark.conf.set(key, before)
