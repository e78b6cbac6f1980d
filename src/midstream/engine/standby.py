"""Standbys: executors that follow the commits and keep the state of others' instances at hand, to take over with it."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from midstream.engine.placer import Placer
from midstream.engine.warming import launch, read_warmth, stop
from midstream.placement.assign import Assignment, Moving
from midstream.state.hashspace import HashRange
from midstream.state.store import Store
from midstream.state.warmup import WARMUPS, Warmth, WarmupJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)


@dataclass
class Standby:
    """Keeps one process on every executor that stands by, and starts others when instances or executors change."""

    spark: SparkSession
    placer: Placer
    store: Store
    _held: Moving = field(default_factory=dict)
    _jobs: tuple[WarmupJob, ...] = ()

    def keep(self) -> None:
        """After a commit, beside the stream: see that who should follow does."""
        wanted = held_by_standbys(self.placer.assignment)
        if wanted == self._held or self.store.local_path(WARMUPS) is not None:
            return  # as it was, or everybody reads the same files anyway
        self.stop()
        self._held, id_ = wanted, uuid.uuid4().hex
        self._jobs = tuple(WarmupJob(id_, e, self.store, {}, ranges, follow=True) for e, ranges in wanted.items())
        if self._jobs:
            launch(self.spark, self.placer.cluster, self._jobs)
            _logger.info("executors %s stand by", ", ".join(wanted))

    def warmth(self) -> dict[str, Warmth]:
        """By executor, up to which epoch it has what it stands by for."""
        return {job.executor: read_warmth(self.store, job.path) for job in self._jobs}

    def stop(self) -> None:
        if self._jobs:
            stop(self._jobs[0])
        self._held, self._jobs = {}, ()


def held_by_standbys(assignment: Assignment) -> dict[str, dict[str, tuple[HashRange, ...]]]:
    held: dict[str, dict[str, tuple[HashRange, ...]]] = {}
    for step, instances in assignment.items():
        for instance in instances:
            for executor in instance.standbys:
                of_step = held.setdefault(executor, {})
                of_step[step] = (*of_step.get(step, ()), instance.range)
    return held
