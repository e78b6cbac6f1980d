"""Executors that come and go while the pipeline runs.

One that comes gets its share of the instances once it has the state of it: an executor that was added, or started in
place of a lost one, is no reason for a slow epoch. When one is lost, its instances go on at once where others have
room, and when the driver starts, all do. What their first rows need is fetched by their tasks, and the rest is brought
in the background, hottest first. Executors without instances are made ready for some.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from midstream.changes.settings import Settings
from midstream.engine.pauses import await_pause
from midstream.engine.placer import Placer
from midstream.engine.readying import make_ready
from midstream.engine.warming import bring, make_jobs
from midstream.placement.assign import Assignment, Moving, arrivals
from midstream.state.manifest import Manifest
from midstream.state.store import Store
from midstream.state.warmup import WARMUPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)


@dataclass
class Membership:
    """Sees to the state of instances that move because executors have come or are gone."""

    spark: SparkSession
    placer: Placer
    store: Store
    latest: Callable[[], Manifest]
    settings: Callable[[], Settings]
    stopping: Callable[[], bool]
    rehearse: Callable[[Moving, Assignment], None]
    _seen: Assignment = field(default_factory=dict)
    _ready: frozenset[str] = frozenset()
    _busy: threading.Thread | None = field(default=None)

    def after_commit(self) -> None:
        """Look who is there, and begin what that asks for."""
        if self.placer.cluster.missing:
            return
        before, self._seen = self._seen, self.placer.assignment
        moved = arrivals(before, self._seen) if not before or lost(before, self.placer.executors) else {}
        came = self.placer.newcomers
        if (moved or came or self.placer.idle - self._ready) and (self._busy is None or not self._busy.is_alive()):
            self._busy = threading.Thread(target=self._see_to, args=(moved, came), name="midstream-membership")
            self._busy.daemon = True
            self._busy.start()

    def _see_to(self, moved: Moving, came: frozenset[str]) -> None:
        try:
            self._bring(moved, "instances that had to go on at once")
            rules = self.settings().rules
            ranges = {id_: step.ranges for id_, step in self.latest().steps.items()}
            after = self.placer.preview(ranges, rules, came)
            share = arrivals(self.placer.assignment, after) if came else {}
            self._bring(share, "executors that have come")
            self.rehearse(share, after)
        except Exception:
            _logger.warning("state is not brought to executors before they need it", exc_info=True)
        self.placer.admit(came)
        self._make_ready(self.placer.idle - self._ready)

    def _make_ready(self, idle: frozenset[str]) -> None:
        self._ready |= idle
        try:
            pause = partial(await_pause, self.latest, self._wanted)
            make_ready(self.spark, self.placer.cluster, sorted(idle), pause)
            for executor in sorted(idle):
                self.rehearse(*as_if_moved(self.placer.assignment, executor))
        except Exception:
            _logger.warning("executors without instances begin later, when they get some", exc_info=True)

    def _wanted(self) -> bool:
        return not self.stopping()

    def _bring(self, wanted: Moving, whose: str) -> None:
        if wanted and self.store.local_path(WARMUPS) is None:
            jobs = make_jobs(self.store, self.latest().steps, wanted, self.settings().fetch_bytes_per_second)
            warmth = bring(self.spark, self.placer.cluster, jobs, self._wanted)
            _logger.info("the state of %s is there: %s", whose, warmth)


def as_if_moved(assignment: Assignment, executor: str) -> tuple[Moving, Assignment]:
    """What an executor would get, and where all would be, if the first instance of each step moved there."""
    moved = {step: (replace(first, executor=executor), *others) for step, (first, *others) in assignment.items()}
    return arrivals(assignment, moved), moved


def lost(before: Assignment, there: frozenset[str]) -> bool:
    """Whether an executor that had instances is gone."""
    return any(instance.executor not in there for instances in before.values() for instance in instances)
