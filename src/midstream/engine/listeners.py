"""Those who want to know of every phase of every change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from midstream.coordinator.messages import Record
from midstream.coordinator.modification import Modification, Phase
from midstream.engine.changelog import ChangeLog
from midstream.engine.history import HistoryEntry

_logger = logging.getLogger(__name__)


@dataclass
class Listeners:
    """Called by whoever has written a transition down. None of them can make a change fail."""

    callbacks: list[Callable[[HistoryEntry], None]] = field(default_factory=list)

    def tell(self, record: Record, modifications: Mapping[int, Modification], log: ChangeLog) -> None:
        known = modifications.get(record.id)
        if known is None or not self.callbacks:
            return
        told = [replace(known, phase=record.phase)]
        if known.undoes is not None and record.phase is Phase.APPLIED:
            told.append(modifications[known.undoes])
        for entry in map(log.entry, told):
            for callback in self.callbacks:
                try:
                    callback(entry)
                except Exception:
                    _logger.warning("a listener to changes failed", exc_info=True)
