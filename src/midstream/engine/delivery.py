"""What a merge has made is brought to the executors that will read it before a commit names it.

A merged base replaces all that executors have in their caches. Were it committed at once, the next epoch would wait
until each of them has fetched its share anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from midstream.changes.settings import Settings
from midstream.engine.pauses import await_pause
from midstream.engine.placer import Placer
from midstream.engine.warming import bring, make_jobs
from midstream.placement.assign import Assignment
from midstream.state.compaction import CompactionResult
from midstream.state.hashspace import HashRange
from midstream.state.manifest import Manifest
from midstream.state.store import Store
from midstream.state.warmup import WARMUPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

_SMALL_BYTES = 64 * 2**20
"""What is smaller is brought ahead by tasks (`task/ahead.py`): a process on each executor that would bring it costs
more (0.40 s for the epoch beside which five of them began, of 0.20 s). 64 MB take two thirds of a second at 100 MB/s,
and there are two pauses of the stream until it is read."""


@dataclass(frozen=True)
class Delivery:
    """Delivers merges on a cluster. Does nothing without one, or where everybody reads the same files."""

    spark: SparkSession
    placer: Placer
    store: Store
    latest: Callable[[], Manifest]
    settings: Callable[[], Settings]
    moving: Callable[[], bool]
    """Whether instances are about to move. Their state goes first, and only then is known who will read what was
    merged: a delivery under way is broken off, and goes on with what is still missing."""

    def __call__(self, merged: CompactionResult, wanted: Callable[[], bool]) -> None:
        size = sum(segment.bytes for segment in merged.outputs)
        if self.placer.cluster.missing or self.store.local_path(WARMUPS) is not None or size < _SMALL_BYTES:
            return
        try:
            while wanted():
                if self.moving():
                    time.sleep(0.1)
                else:
                    self._bring(merged, lambda: wanted() and not self.moving())
                    if not self.moving():
                        return
        except Exception:
            _logger.warning("a merge of %s is fetched by the epochs that need it", merged.step, exc_info=True)

    def _bring(self, merged: CompactionResult, wanted: Callable[[], bool]) -> None:
        step = self.latest().steps.get(merged.step)
        readers = owners(self.placer.assignment, merged.step)
        if step is None or merged.table not in step.tables or not readers or not wanted():
            return
        table = replace(step.tables[merged.table], segments=merged.outputs)
        only = {merged.step: replace(step, tables={merged.table: table})}
        jobs = make_jobs(self.store, only, readers, self.settings().fetch_bytes_per_second)
        pause = partial(await_pause, self.latest, wanted)
        warmth = bring(self.spark, self.placer.cluster, jobs, wanted, pause=pause)
        _logger.info("a merge of %s was brought to executors %s: %s", merged.step, ", ".join(readers), warmth)


def owners(assignment: Assignment, step: str) -> dict[str, dict[str, tuple[HashRange, ...]]]:
    """By executor, the ranges of a step it runs. Standbys follow the commits by themselves."""
    found: dict[str, dict[str, tuple[HashRange, ...]]] = {}
    for instance in assignment.get(step, ()):
        held = found.setdefault(instance.executor, {step: ()})
        held[step] = (*held[step], instance.range)
    return found
