"""What Spark's query reads and when: a version with another feed needs another query, all others share one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from midstream.engine.sparklog import DEFAULT_FOLDER, PULSE, LogShape
from midstream.graph.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class Feed:
    """The sources of a query, its trigger, and where it keeps its log. Two feeds are the same when they are one."""

    sources: Mapping[str, DataFrame]
    trigger: Mapping[str, Any] = field(default_factory=dict)
    folder: str = DEFAULT_FOLDER
    pulse: DataFrame | None = None

    @property
    def shape(self) -> LogShape:
        return LogShape(self.folder, (*self.sources, *([PULSE] if self.pulse is not None else [])))

    @property
    def ends_by_itself(self) -> bool:
        return bool(self.trigger.get("availableNow") or self.trigger.get("once"))


def read_by(pipeline: Pipeline) -> tuple[str, ...]:
    """What a query of a pipeline reads, in the order Spark knows it in."""
    return (*(source.id for source in pipeline.sources), *([PULSE] if pipeline.needs_pulse else []))
