"""What a sink is: tasks stage Parquet files, the driver makes them visible once the epoch's manifest exists.

The manifest is the one commit point. Before it, staged files are orphans; after it, `finalise` is called until it
succeeds, also by a restarted driver, always with the same staged files. So `finalise` must be idempotent by epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from midstream.state.manifest import StagedFile as StagedFile
from midstream.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StageOptions:
    """How tasks stage for a sink: no files at all (only counted), a file name suffix, column statistics."""

    files: bool = True
    suffix: str = ""
    statistics: bool = False


@dataclass(frozen=True)
class StagedEpoch:
    """All a sink is given to make one epoch visible. The same call with the same content may come twice."""

    epoch: int
    files: tuple[StagedFile, ...]


@dataclass(frozen=True)
class SinkContext:
    """Facts about the stream a sink belongs to, known before the first epoch.

    `keys` are the key columns when the input is the output of a keyed step (perhaps through transforms that keep them);
    `complete` says that every epoch holds the whole result, not the changed rows.
    `checkpoint_id` is unique to a checkpoint and survives restarts: sinks record epochs under it, with the sink's id.
    `staging` is where tasks put this sink's files (what the sink's `staging` method returned).
    `last_epoch` is the last epoch the checkpoint has committed, -1 when none, None when unknown: a sink that is
    ahead of it would take new epochs for repetitions of old ones, and refuses in `prepare`.
    """

    sink_id: str
    checkpoint_id: str
    schema: pa.Schema
    keys: tuple[str, ...]
    complete: bool
    staging: Store
    spark: SparkSession
    last_epoch: int | None = None


@runtime_checkable
class Sink(Protocol):
    """Where results go. Only `stage_options` and the staging store travel to tasks; the rest runs on the driver."""

    @property
    def stage_options(self) -> StageOptions:
        """What tasks hand to `midstream.task.stage.stage`, constant for the life of the sink."""
        ...

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        """The store tasks stage files in: below the checkpoint, or beside the output so that finalising is a rename."""
        ...

    def prepare(self, context: SinkContext) -> None:
        """Check before the first epoch that the target can be reached and fits the schema; raise `SinkError`."""
        ...

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        """Make an epoch visible, exactly once however often this is called."""
        ...

    def describe(self) -> dict[str, str]:
        """Kind and target, for graphs and logs (no secrets)."""
        ...
