"""Rows counted and dropped, for benchmarks."""

from __future__ import annotations

from midstream.sinks.base import SinkContext, StagedEpoch, StageOptions
from midstream.sinks.staging import in_checkpoint
from midstream.state.store import Store


def noop() -> NoopSink:
    """Compute every row and write none; `rows` counts them.

    >>> noop().rows
    0
    """
    return NoopSink()


class NoopSink:
    def __init__(self) -> None:
        self.rows = 0
        self._last_epoch = -1

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions(files=False)

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        return in_checkpoint(checkpoint, sink_id)

    def describe(self) -> dict[str, str]:
        return {"kind": "noop", "target": "nothing"}

    def prepare(self, context: SinkContext) -> None:
        """Nothing to check."""

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        if staged.epoch > self._last_epoch:
            self.rows += sum(file.rows for file in staged.files)
            self._last_epoch = staged.epoch
