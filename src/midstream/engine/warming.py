"""Before instances move, their state is brought to where they go: the stream runs on meanwhile where they are.

Each pass fetches what the last commit names and is not there yet; the epochs that go by in the meantime leave less and
less for the next. What is left at the boundary is fetched by the tasks themselves, as they need it.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from midstream.changes.settings import FetchPolicy, Settings
from midstream.engine.cluster import Cluster
from midstream.engine.internals import map_in_arrow, run_job
from midstream.engine.placer import Placer
from midstream.errors import StoreError
from midstream.placement.assign import Assignment
from midstream.schemas import NOTHING
from midstream.state.hashspace import HashRange
from midstream.state.manifest import Manifest
from midstream.state.store import Store
from midstream.state.warmup import WARMUPS, Warmth, WarmupJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

Moving: TypeAlias = Mapping[str, Mapping[str, tuple[HashRange, ...]]]
"""By executor and step, ranges whose state it needs."""

_PASSES = 4
_SILENCE_SECONDS = 30.0
"""They tell twice a second how far they are. One that does not has ended with its executor."""

_ENOUGH_BYTES = 4 * 2**20
"""A pass that had to fetch no more than this is the last: an epoch does not notice the rest."""


@dataclass(frozen=True)
class _Begin:
    """The task that starts the process of a job. Rows name the jobs."""

    jobs: tuple[WarmupJob, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from midstream.state.warmup_worker import begin

        for batch in batches:
            for number in batch.column(0).to_pylist():
                begin(self.jobs[number])
        yield from ()


@dataclass
class Warmer:
    """Warms executors up for instances that are about to move to them."""

    spark: SparkSession
    placer: Placer
    store: Store
    latest: Callable[[], Manifest]
    progress: dict[int, Warmth] = field(default_factory=dict)
    """By modification: what its last pass has done so far, and what all of them have fetched."""

    def warm(
        self,
        modification: int,
        ranges: Mapping[str, tuple[HashRange, ...]],
        settings: Settings,
        wanted: Callable[[], bool],
    ) -> None:
        """Come back when the executors that get instances have their state, or it is no longer wanted. If they cannot
        get it beforehand, they do when they need it: a change does not fail for that."""
        if self.placer.cluster.missing or self.store.local_path(WARMUPS) is not None:
            return  # nothing moves, or everybody reads the same files
        try:
            moving = arrivals(self.placer.assignment, self.placer.preview(ranges, settings.rules))
            if moving and settings.fetch_policy is FetchPolicy.HOT_FIRST:
                self._warm(modification, moving, settings.fetch_bytes_per_second, wanted)
            elif moving and settings.fetch_policy is FetchPolicy.ORDER_UNAWARE:
                jobs = self._jobs(moving, settings.fetch_bytes_per_second, by_heat=False)
                launch(self.spark, self.placer.cluster, jobs)
        except Exception:
            _logger.warning("state is not brought to executors before they need it", exc_info=True)

    def _warm(
        self, modification: int, moving: Moving, bytes_per_second: float | None, wanted: Callable[[], bool]
    ) -> None:
        for number in range(_PASSES):
            warmth = self._pass(modification, moving, bytes_per_second, wanted)
            _logger.info("modification %d, pass %d: %s", modification, number, warmth)
            if warmth.error or warmth.fetched <= _ENOUGH_BYTES or not wanted():
                return

    def _pass(
        self,
        modification: int,
        moving: Moving,
        bytes_per_second: float | None,
        wanted: Callable[[], bool],
    ) -> Warmth:
        jobs = self._jobs(moving, bytes_per_second)
        launch(self.spark, self.placer.cluster, jobs)
        known, last, heard = self.progress.get(modification, Warmth()).fetched, Warmth(), time.monotonic()
        while True:
            warmth = self._look(jobs)
            self.progress[modification] = replace(warmth, fetched=known + warmth.fetched)
            if warmth.finished:
                self.store.delete([job.path for job in jobs])
                return warmth
            if warmth != last:
                last, heard = warmth, time.monotonic()
            elif time.monotonic() - heard > _SILENCE_SECONDS:
                warmth = replace(warmth, error=f"nothing was heard of it for {_SILENCE_SECONDS:.0f} s")
            if warmth.error or not wanted():
                # The others see it when they next tell how far they are. The next start sweeps the folder.
                self.store.put(f"{jobs[0].stop}/now", b"")
                return warmth
            time.sleep(0.1)

    def _jobs(self, moving: Moving, bytes_per_second: float | None, by_heat: bool = True) -> tuple[WarmupJob, ...]:
        steps, id_ = self.latest().steps, uuid.uuid4().hex
        share = bytes_per_second / len(moving) if bytes_per_second else None
        return tuple(
            WarmupJob(
                id=id_,
                executor=executor,
                store=self.store,
                steps=steps,
                ranges={step: of_step for step, of_step in ranges.items() if step in steps},
                bytes_per_second=share,
                by_heat=by_heat,
            )
            for executor, ranges in moving.items()
        )

    def _look(self, jobs: tuple[WarmupJob, ...]) -> Warmth:
        each = [read_warmth(self.store, job.path) for job in jobs]
        return Warmth(
            total=sum(w.total for w in each),
            done=sum(w.done for w in each),
            fetched=sum(w.fetched for w in each),
            seconds=max(w.seconds for w in each),
            finished=all(w.finished for w in each),
            error=next((w.error for w in each if w.error), None),
        )


def arrivals(before: Assignment, after: Assignment) -> dict[str, dict[str, tuple[HashRange, ...]]]:
    """By executor and step, the ranges of instances it is to run and has not run, or only a part of them."""
    found: dict[str, dict[str, tuple[HashRange, ...]]] = {}
    for step, instances in after.items():
        for instance in instances:
            had = [i.range for i in before.get(step, ()) if i.executor == instance.executor]
            if not any(r.start <= instance.range.start and instance.range.end <= r.end for r in had):
                of_step = found.setdefault(instance.executor, {})
                of_step[step] = (*of_step.get(step, ()), instance.range)
    return found


def launch(spark: SparkSession, cluster: Cluster, jobs: Sequence[WarmupJob]) -> None:
    """Have each job begun on its executor."""
    location = {executor.id: executor.location for executor in cluster.executors()}
    numbers = spark.range(0, len(jobs), 1, len(jobs))
    placed = cluster.placed(numbers, [location.get(job.executor, "") for job in jobs])
    run_job(map_in_arrow(placed, _Begin(tuple(jobs)), NOTHING))


def read_warmth(store: Store, path: str) -> Warmth:
    try:
        return Warmth(**json.loads(store.read(path).to_pybytes()))
    except StoreError as error:
        if error.error_class == "MISSING_OBJECT":
            return Warmth()  # it has not begun to tell
        raise
