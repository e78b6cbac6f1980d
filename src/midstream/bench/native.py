"""The native peers: Structured Streaming's own aggregation, on each of its state stores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.bench.timing import QueryProgress, StateSize
from midstream.bench.workload import Workload
from midstream.errors import MidstreamError

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = {
    PROVIDER: f"{STATE_PACKAGE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
IN_MEMORY = {PROVIDER: f"{STATE_PACKAGE}.HDFSBackedStateStoreProvider"}


@dataclass(frozen=True)
class NativeCount:
    """`groupBy(key).count()` in update mode; `count_sql` finds the count in a row of its state store."""

    name: str
    conf: Mapping[str, str]
    query: Callable[[DataFrame], DataFrame] = lambda keyed: keyed.groupBy("key").count()
    count_sql: str = "value.count"
    state_options: Mapping[str, str] | None = None

    def start(
        self, spark: SparkSession, workload: Workload, directory: Path, *, rows_per_epoch: int, once: bool
    ) -> NativeRunning:
        counted = self.query(workload.with_key(workload.stream(spark, rows_per_epoch)))
        checkpoint = directory / "checkpoint"
        writer = counted.writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(checkpoint))
        if once:
            writer = writer.trigger(availableNow=True)
        return NativeRunning(self, spark, writer.start(), directory, checkpoint)


class NativeRunning:
    def __init__(
        self,
        contender: NativeCount,
        spark: SparkSession,
        query: StreamingQuery,
        directory: Path,
        checkpoint: Path,
    ) -> None:
        self._contender = contender
        self._spark = spark
        self._query = query
        self._directory = directory
        self._checkpoint = checkpoint
        self.name = contender.name
        self.progress = QueryProgress(query)

    def failure(self) -> BaseException | None:
        if self._query.isActive:
            return None
        return self._query.exception() or MidstreamError("QUERY_ENDED", f"{self.name} has ended.")

    def wait(self) -> None:
        self._query.awaitTermination()

    def stop(self) -> None:
        # Stopping interrupts the batch in flight, whose aborted tasks are of no interest to anyone.
        self._spark.sparkContext.setLogLevel("OFF")
        self._query.stop()
        self._spark.sparkContext.setLogLevel("ERROR")

    def state_size(self) -> StateSize | None:
        return self.progress.state_size()

    def rows_committed(self) -> int:
        return committed_offset(self._checkpoint)

    def counts(self) -> pa.Table:
        reader = self._spark.read.format("statestore").options(**(self._contender.state_options or {}))
        state = reader.load(str(self._checkpoint))
        found = self._directory / "state-read"
        state.selectExpr("key.key AS key", f"{self._contender.count_sql} AS n").write.parquet(str(found))
        return pq.read_table(found)


def committed_offset(checkpoint: Path) -> int:
    """The source offset of the last batch in Spark's commit log, from its entry in the offset log."""
    last = max(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdigit())
    lines = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    return int(json.loads(lines[2])["offset"])


spark_rocksdb = NativeCount("spark-rocksdb", ROCKSDB)
spark_memory = NativeCount("spark-memory", IN_MEMORY)
PEERS = {peer.name: peer for peer in (spark_rocksdb, spark_memory)}
