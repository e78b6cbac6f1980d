"""What a run tells of the changes it was given."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.coordinator.modification import Modification


@dataclass(frozen=True)
class HistoryEntry:
    """A change in the words it was handed in with, and what became of it."""

    text: str
    modification: Modification
    by: str | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        m = self.modification
        at = f" at epoch {m.epoch}" if m.epoch is not None else ""
        took = f" in {m.seconds['total']:.1f} s" if "total" in m.seconds else ""
        by = f" (by {self.by})" if self.by else ""
        return f"{m.id}: {self.text}: {m.phase}{at}{took}{f': {m.reason}' if m.reason else ''}{by}"
