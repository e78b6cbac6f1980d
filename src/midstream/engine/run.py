"""Starting a pipeline, and the handle on it while it runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from midstream.engine.compile import compile_pipeline
from midstream.engine.epoch import EpochRunner
from midstream.engine.epochs import EpochReport
from midstream.engine.failure import as_midstream_error
from midstream.engine.internals import EPOCH_CONF, SessionConf
from midstream.engine.plans import record_plan
from midstream.engine.reports import ReportBox
from midstream.engine.schemas import to_arrow
from midstream.engine.sources import load_sources, tagged_union
from midstream.engine.sparklog import SparkLog
from midstream.errors import CheckpointError, MidstreamError
from midstream.sinks.base import SinkContext
from midstream.state.collector import Collector
from midstream.state.compactor import Compactor
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest
from midstream.state.query import read_table
from midstream.state.store import open_store
from midstream.task.staging import StageTarget

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from midstream.graph.pipeline import Pipeline


def start(
    pipeline: Pipeline,
    spark: SparkSession,
    checkpoint: str,
    *,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    retain_epochs: int,
    store_options: Mapping[str, str] | None,
) -> Run:
    """Check everything that can be checked, finish what a crash left, and start the query."""
    if retain_epochs < 1:
        raise MidstreamError("BAD_RETENTION", f"retain_epochs is {retain_epochs}.", hint="keep at least 1 epoch.")
    sources = load_sources(pipeline, spark)
    compiled = compile_pipeline(pipeline, sources, spark)
    store = open_store(checkpoint, store_options)
    ledger = Ledger.open(store)
    last = ledger.last()
    plan = record_plan(ledger, compiled, last)
    contexts: dict[str, SinkContext] = {}
    targets: dict[str, StageTarget] = {}
    for id_, sink in compiled.sinks.items():
        staging = sink.step.sink.staging(store, ledger.checkpoint_id, id_)
        schema = to_arrow(sink.schema)
        contexts[id_] = SinkContext(
            id_, ledger.checkpoint_id, schema, sink.keys, sink.complete, staging, spark, last.epoch
        )
        sink.step.sink.prepare(contexts[id_])
        targets[id_] = StageTarget(id_, staging, schema, sink.step.sink.stage_options)
    return Run(
        spark=spark,
        stream=tagged_union(sources),
        trigger=dict(trigger or {}),
        name=name,
        retain_epochs=retain_epochs,
        make_runner=lambda committed, log, compactor: EpochRunner(
            compiled=compiled,
            ledger=ledger,
            log=log,
            compactor=compactor,
            targets=targets,
            contexts=contexts,
            box=ReportBox(spark.sparkContext),
            last=last,
            plan=plan,
            committed=committed,
        ),
        ledger=ledger,
        last=last,
        compactor=Compactor(
            store, {id_: k.step.compaction for id_, k in compiled.keyed.items()}, ledger.driver.generation
        ),
    )


class Run:
    """A running pipeline: what it does, what it has done, and how to end it."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        stream: DataFrame,
        trigger: dict[str, Any],
        name: str | None,
        retain_epochs: int,
        make_runner: Callable[..., EpochRunner],
        ledger: Ledger,
        last: Manifest,
        compactor: Compactor,
    ) -> None:
        self._ledger = ledger
        self._compactor = compactor
        self._reports: deque[EpochReport] = deque(maxlen=1000)
        self._callbacks: list[Callable[[EpochReport], None]] = []
        self._failure: MidstreamError | None = None
        self._epoch_running = threading.Lock()
        self._housekeeping = ThreadPoolExecutor(1, "midstream-housekeeping")
        self._collector = Collector(ledger, retain_epochs)
        before = ledger.read(last.epoch - 1) if last.epoch - 1 in ledger.epochs() else None
        self._log = SparkLog(ledger.store, last, before)
        self._runner = make_runner(self._committed, self._log, compactor)
        if last.epoch >= 0:
            self._runner.finalise(last)
        self._housekeeping.submit(self._collector.recover, compactor.in_flight())
        with SessionConf(spark, EPOCH_CONF):
            writer = stream.writeStream.foreachBatch(self._on_batch)
            writer = writer.option("checkpointLocation", str(self._log.directory))
            if name:
                writer = writer.queryName(name)
            if trigger:
                writer = writer.trigger(**trigger)
            self.query: StreamingQuery = writer.start()

    @property
    def status(self) -> str:
        """`starting`, `running`, `stopped` or `failed`."""
        if self._failure is not None or self.exception is not None:
            return "failed"
        if not self.query.isActive:
            return "stopped"
        return "running" if self._reports else "starting"

    @property
    def exception(self) -> MidstreamError | None:
        """Why the run failed, or None."""
        if self._failure is None and not self.query.isActive:
            error = self.query.exception()
            if error is not None:
                self._failure = as_midstream_error(error)
        return self._failure

    def epochs(self, last: int = 1000) -> list[EpochReport]:
        """Reports of the most recent epochs, oldest first."""
        return list(self._reports)[-last:]

    def on_epoch(self, callback: Callable[[EpochReport], None]) -> None:
        """Have a function called after each commit. It runs in the stream's thread: keep it short."""
        self._callbacks.append(callback)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run ends; say whether it did. Raises what made it fail."""
        try:
            ended = self.query.awaitTermination(timeout)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            raise self._failed(error) from error
        if ended is False:
            return False
        self._close()
        if self.exception is not None:
            raise self.exception
        return True

    def process_available(self) -> None:
        """Wait until everything the sources had at this moment is committed. Raises what made the run fail."""
        try:
            self.query.processAllAvailable()
        except StreamingQueryException as error:
            raise self._failed(error) from error

    def stop(self) -> None:
        """End gracefully: the epoch under way is committed first."""
        with self._epoch_running:
            self.query.stop()
        self._close()

    def read_state(self, step: str, table: str | None = None, epoch: int | None = None) -> pa.Table:
        """All rows of a keyed step's table, at the last or at any retained epoch."""
        if epoch is None:
            manifest = self._runner.last
        else:
            retained = self._ledger.epochs()
            if epoch not in retained:
                known = f"epochs {retained[0]} to {retained[-1]}" if retained else "none yet"
                raise CheckpointError.no_such_state(f"epoch {epoch}", known)
            manifest = self._ledger.read(epoch)
        return read_table(self._ledger.store, manifest, step, table)

    @property
    def last_epoch(self) -> int:
        """The last committed epoch, -1 before the first."""
        return self._runner.last.epoch

    def _on_batch(self, batch: DataFrame, epoch: int) -> None:
        with self._epoch_running:
            try:
                self._runner.run(batch, epoch)
            except Exception as error:
                self._failure = as_midstream_error(error)
                raise

    def _committed(self, manifest: Manifest, report: EpochReport) -> None:
        self._reports.append(report)
        for callback in self._callbacks:
            callback(report)
        self._housekeeping.submit(self._collector.committed, manifest, self._compactor.in_flight())

    def _failed(self, error: Exception) -> MidstreamError:
        self._close()
        if self._failure is None:
            self._failure = as_midstream_error(error)
        return self._failure

    def _close(self) -> None:
        self._compactor.close()
        self._housekeeping.shutdown(wait=True)
        self._log.close()
