"""Open windows that give what they have before a change: one more epoch of the version that runs."""

from __future__ import annotations

from midstream.changes.change import Change, drained_by
from midstream.coordinator.modification import Modification, Phase
from midstream.engine.version import Version


class Draining:
    """Which change windows have been drained for. A driver that starts anew drains what is left by then once more."""

    def __init__(self) -> None:
        self._drained: int | None = None

    def begin(self, waiting: Modification | None, change: Change | None, current: Version) -> bool:
        """Have the next epoch drain the steps a change wants drained, unless an epoch has; say whether it does."""
        if waiting is None or waiting.phase is not Phase.WAITING or self._drained == waiting.id:
            return False
        current.draining = drained_by(change) & set(current.compiled.keyed)
        return bool(current.draining)

    def committed(self, waiting: Modification | None, current: Version) -> None:
        if current.draining and waiting is not None:
            self._drained = waiting.id
        current.draining = frozenset()
