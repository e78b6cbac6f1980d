"""What Spark's query reads and when: a version with another feed needs another query, all others share one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from midstream.engine.sparklog import DEFAULT_FOLDER, LogShape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class Feed:
    """The sources of a query, its trigger, and where it keeps its log. Two feeds are the same when they are one."""

    sources: Mapping[str, DataFrame]
    trigger: Mapping[str, Any] = field(default_factory=dict)
    folder: str = DEFAULT_FOLDER

    @property
    def shape(self) -> LogShape:
        return LogShape(self.folder, tuple(self.sources))

    @property
    def ends_by_itself(self) -> bool:
        return bool(self.trigger.get("availableNow") or self.trigger.get("once"))
