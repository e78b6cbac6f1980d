"""The queries of a run: one after the other, each with the sources of its time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from midstream.engine.connect.offers import Answering
from midstream.engine.connect.session import is_remote
from midstream.engine.feed import Feed
from midstream.engine.internals import EPOCH_CONF, SessionConf
from midstream.engine.sources import tagged_union, with_pulse
from midstream.errors import EpochError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_logger = logging.getLogger(__name__)

_TRIES = 3
_BUSY = "failed to connect back"
"""What Spark Connect says when the Python process it starts for the function of a query has not answered for ten
seconds, as on a machine that is very busy."""


class Queries:
    """Starts them, and with Spark Connect also what runs their epochs in this process."""

    def __init__(self, spark: SparkSession, name: str | None) -> None:
        self._spark = spark
        self._name = name
        self._answering: list[Answering] = []

    def start(self, feed: Feed, checkpoint: Path, on_batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
        remote = Answering.beside(checkpoint, self._spark, on_batch) if is_remote(self._spark) else None
        try:
            with SessionConf(self._spark, EPOCH_CONF):
                stream = with_pulse(tagged_union(feed.sources), feed.pulse)
                called = remote.offer if remote is not None else on_batch
                writer = stream.writeStream.foreachBatch(called).option(
                    "checkpointLocation", str(checkpoint.absolute())
                )
                if self._name:
                    writer = writer.queryName(self._name)
                if feed.trigger:
                    writer = writer.trigger(**feed.trigger)
                query = _started(writer)
        except (PySparkException, TypeError) as cause:
            if remote is not None:
                remote.close()
            raise EpochError.not_started(str(cause).strip().partition("\n")[0]) from cause
        if remote is not None:
            self._answering.append(remote)
            remote.begin(query)
        return query

    def close(self) -> None:
        """Leave nothing of queries that have ended: neither threads nor connections."""
        for answering in self._answering:
            answering.end()
        self._answering.clear()


def _started(writer: DataStreamWriter) -> StreamingQuery:
    for _ in range(_TRIES - 1):
        try:
            return writer.start()
        except PySparkException as error:
            if _BUSY not in str(error):
                raise
            _logger.warning("Spark did not start the query and is asked again: %s", error)
    return writer.start()
