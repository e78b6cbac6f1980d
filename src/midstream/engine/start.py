"""Starting a pipeline: everything that can be checked is, what a crash left is finished, and the query begins."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from midstream.engine.cluster import Cluster
from midstream.engine.compile import compile_pipeline
from midstream.engine.delivery import Delivery
from midstream.engine.epoch import EpochRunner, Unchanging
from midstream.engine.membership import Membership
from midstream.engine.modify import Modifier
from midstream.engine.placer import Placer
from midstream.engine.pulse import Pulse
from midstream.engine.queries import Queries
from midstream.engine.reports import ReportBox
from midstream.engine.run import Run
from midstream.engine.sources import load_source
from midstream.engine.standby import Standby
from midstream.engine.wishes import Program
from midstream.errors import EpochError, MidstreamError
from midstream.placement.assign import Assignment, Moving
from midstream.state.compactor import Compactor
from midstream.state.ledger import Ledger
from midstream.state.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        return Run(ledger, runner, modifier, standbys, membership, Queries(spark, name), retain_epochs, changeable)
    except BaseException:
        # A driver that runs this checkpoint goes on as if we had never come.
        with suppress(MidstreamError):
            ledger.release()
        raise
