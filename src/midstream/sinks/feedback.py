"""The end of a loop: rows stay staged in the checkpoint, where the next epoch reads them."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.sinks.base import SinkContext, StagedEpoch, StageOptions
from midstream.sinks.staging import in_checkpoint
from midstream.state.store import Store


@dataclass(frozen=True)
class Feedback:
    """The manifest of an epoch names the rows that are under way: they are part of its snapshot."""

    loop: str

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions()

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        return in_checkpoint(checkpoint, sink_id)

    def describe(self) -> dict[str, str]:
        return {"kind": "feedback", "target": self.loop}

    def prepare(self, context: SinkContext) -> None:
        """Nothing to check."""

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        """Nothing to do: they are where they are read."""
