"""Standbys: executors that follow the commits and keep the state of others' instances at hand, to take over with it."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from midstream.engine.placer import Placer
from midstream.engine.warming import SILENCE_SECONDS, launch, read_warmth, stop
from midstream.placement.assign import Assignment, Moving
from midstream.state.hashspace import HashRange
from midstream.state.store import Store
from midstream.state.warmup import WARMUPS, Warmth, WarmupJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
"""Between two looks whether all that should follow do."""


@dataclass
class Standby:
    """Keeps one process on every executor that stands by, and starts others when instances or executors change, or one
    is heard of no more."""

    spark: SparkSession
    placer: Placer
    store: Store
    _held: Moving = field(default_factory=dict)
    _jobs: tuple[WarmupJob, ...] = ()
    _heard: dict[str, tuple[object, float]] = field(default_factory=dict)
    """By what each has told last, and when that was found."""
    _looked: float = 0.0

    def keep(self) -> None:
        """After a commit, beside the stream: see that who should follow does."""
        wanted = held_by_standbys(self.placer.assignment)
        if self.store.local_path(WARMUPS) is not None:
            return  # everybody reads the same files anyway
        silent = self._silent()
        if wanted == self._held and not silent:
            return
        if silent:
            _logger.warning("nothing is heard of what follows on executors %s: it is begun anew", ", ".join(silent))
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
        self._held, self._jobs, self._heard = {}, (), {}

    def _silent(self, now: Callable[[], float] = time.monotonic) -> list[str]:
        """Executors of which nothing has been heard for long, though a process that follows tells twice a second how
        far it is. Its executor may be well: the system ends a process when memory is short."""
        if not self._jobs or now() - self._looked < _LOOK_SECONDS:
            return []
        self._looked = now()
        told = {item.path: item.modified for item in self.store.list(f"{WARMUPS}/{self._jobs[0].id}")}
        for job in self._jobs:
            last = told.get(job.path)
            if job.path not in self._heard or self._heard[job.path][0] != last:
                self._heard[job.path] = last, now()
        return [job.executor for job in self._jobs if now() - self._heard[job.path][1] > SILENCE_SECONDS]


def held_by_standbys(assignment: Assignment) -> dict[str, dict[str, tuple[HashRange, ...]]]:
    held: dict[str, dict[str, tuple[HashRange, ...]]] = {}
    for step, instances in assignment.items():
        for instance in instances:
            for executor in instance.standbys:
                of_step = held.setdefault(executor, {})
                of_step[step] = (*of_step.get(step, ()), instance.range)
    return held
