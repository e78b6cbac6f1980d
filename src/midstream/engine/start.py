"""Starting a pipeline: everything that can be checked is, what a crash left is finished, and the query begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException

from midstream.engine.cluster import Cluster
from midstream.engine.compile import compile_pipeline
from midstream.engine.connect.offers import Answering
from midstream.engine.connect.session import is_remote
from midstream.engine.delivery import Delivery
from midstream.engine.epoch import EpochRunner, Unchanging
from midstream.engine.feed import Feed
from midstream.engine.internals import EPOCH_CONF, SessionConf
from midstream.engine.membership import Membership
from midstream.engine.modify import Modifier
from midstream.engine.placer import Placer
from midstream.engine.pulse import Pulse
from midstream.engine.reports import ReportBox
from midstream.engine.run import QueryMaker, Run
from midstream.engine.sources import load_source, tagged_union, with_pulse
from midstream.engine.standby import Standby
from midstream.engine.wishes import Program
from midstream.errors import EpochError, MidstreamError
from midstream.placement.assign import Assignment, Moving
from midstream.state.compactor import Compactor
from midstream.state.ledger import Ledger
from midstream.state.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from midstream.graph.pipeline import Pipeline


_logger = logging.getLogger(__name__)

_TRIES = 3
_BUSY = "failed to connect back"
"""What Spark Connect says when the Python process it starts for the function of a query has not answered for ten
seconds, as on a machine that is very busy."""


def start(
    pipeline: Pipeline,
    spark: SparkSession,
    checkpoint: str,
    *,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    retain_epochs: int,
    store_options: Mapping[str, str] | None,
    live_changes: Literal["keep", "drop"],
    changeable: bool,
    standby: int,
) -> Run:
    """Check everything that can be checked, finish what a crash left, and start the query."""
    if not hasattr(spark, "readStream"):
        raise EpochError.no_session(f"{type(spark).__module__}.{type(spark).__qualname__}")
    if retain_epochs < 1:
        raise MidstreamError("BAD_RETENTION", f"retain_epochs is {retain_epochs}.", hint="keep at least 1 epoch.")
    if standby < 0:
        raise MidstreamError("BAD_STANDBY", f"standby is {standby}.", hint="0 for none, or how many executors follow.")
    loaded = {source: load_source(source, spark) for source in pipeline.sources}
    compiled = compile_pipeline(pipeline, {source.id: frame for source, frame in loaded.items()}, spark)
    program = Program(pipeline, loaded, compiled, dict(trigger or {}))
    ledger = Ledger.open(open_store(checkpoint, store_options))
    try:
        placer = Placer(Cluster(spark), standby)
        pulse = Pulse(spark)
        modifier = Modifier(program, ledger, spark, retain_epochs, placer, pulse, drop_live=live_changes == "drop")
        runner = EpochRunner(
            versions=modifier if changeable else Unchanging(modifier.current),
            ledger=ledger,
            compactor=Compactor(ledger.store, modifier.current.policies, ledger.driver.generation),
            box=ReportBox.of(spark, ledger.store),
            placer=placer,
            pulse=pulse,
        )
        latest, settings = lambda: modifier.latest().manifest, lambda: modifier.current.settings
        moving, stopping = lambda: modifier.warmer.moving, lambda: modifier.stopping()
        runner.compactor.held = moving
        runner.compactor.withheld = lambda: modifier.warmer.unmerged
        runner.compactor.deliver = Delivery(spark, placer, ledger.store, latest, settings, moving)
        standbys = Standby(spark, placer, ledger.store)

        def rehearse(arriving: Moving, after: Assignment) -> None:
            modifier.warmer.rehearse(arriving, after, modifier.current, lambda: not modifier.stopping())

        membership = Membership(spark, placer, ledger.store, latest, settings, stopping, rehearse)
        return Run(ledger, runner, modifier, standbys, membership, _query_maker(spark, name), retain_epochs, changeable)
    except BaseException:
        # A driver that runs this checkpoint goes on as if we had never come.
        with suppress(MidstreamError):
            ledger.release()
        raise


def _query_maker(spark: SparkSession, name: str | None) -> QueryMaker:
    def make(feed: Feed, checkpoint: Path, on_batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
        remote = Answering.beside(checkpoint, spark, on_batch) if is_remote(spark) else None
        try:
            with SessionConf(spark, EPOCH_CONF):
                stream = with_pulse(tagged_union(feed.sources), feed.pulse)
                called = remote.offer if remote is not None else on_batch
                writer = stream.writeStream.foreachBatch(called).option(
                    "checkpointLocation", str(checkpoint.absolute())
                )
                if name:
                    writer = writer.queryName(name)
                if feed.trigger:
                    writer = writer.trigger(**feed.trigger)
                query = _started(writer)
        except (PySparkException, TypeError) as cause:
            if remote is not None:
                remote.close()
            raise EpochError.not_started(str(cause).strip().partition("\n")[0]) from cause
        if remote is not None:
            remote.begin(query)
        return query

    return make


def _started(writer: DataStreamWriter) -> StreamingQuery:
    for _ in range(_TRIES - 1):
        try:
            return writer.start()
        except PySparkException as error:
            if _BUSY not in str(error):
                raise
            _logger.warning("Spark did not start the query and is asked again: %s", error)
    return writer.start()
