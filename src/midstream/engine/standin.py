"""When the sink that a change has put in the place of another cannot be written: the other one gets the rows."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import PurePosixPath

from midstream.changes.change import Change, Insert, Replace, single_changes
from midstream.graph.pipeline import Pipeline
from midstream.sinks.base import Sink, SinkContext, StagedEpoch
from midstream.sinks.staging import epoch_folder, read_batches
from midstream.state.ledger import Ledger
from midstream.task.stage import stage

_logger = logging.getLogger(__name__)


def sink_change(change: Change, sink: str) -> Replace | Insert | None:
    """The part of a change that has put a sink in, if one has."""
    found = (single for single in single_changes(change) if isinstance(single, Replace | Insert))
    return next((single for single in found if single.sink is not None and single.target == sink), None)


def written_before(pipeline: Pipeline, context: SinkContext, staged: StagedEpoch, ledger: Ledger) -> bool:
    """Give an epoch to the sink that a pipeline had before a change; whether it has it now."""
    sink = next((step.sink for step in pipeline.sinks if step.id == context.sink_id), None)
    try:
        if sink is not None:
            write_instead(sink, context, staged, ledger)
    except Exception:
        _logger.exception("epoch %d cannot be written to the sink before it either", staged.epoch)
        return False
    return sink is not None


def write_instead(sink: Sink, failing: SinkContext, staged: StagedEpoch, ledger: Ledger) -> None:
    """Make a committed epoch visible in another sink than the one it was staged for, once however often it is called.

    Staged files are Parquet whatever the sink, so they only have to lie where this one looks for them. They get the
    same names every time: a sink that has them already knows them by name or by epoch.
    """
    staging = sink.staging(ledger.store, failing.checkpoint_id, failing.sink_id)
    context = replace(failing, staging=staging, last_epoch=staged.epoch)
    sink.prepare(context)
    copies = []
    for file in staged.files:
        name = f"{epoch_folder(staged.epoch)}/{PurePosixPath(file.path).stem}-instead"
        rows = read_batches(failing.staging, [file])
        copies.append(stage(staging, context.schema, name, rows, sink.stage_options))
    sink.finalise(context, StagedEpoch(staged.epoch, tuple(copy for copy in copies if copy is not None)))
