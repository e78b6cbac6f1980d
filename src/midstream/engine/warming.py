"""Before instances move, their state is brought to where they go: the stream runs on meanwhile where they are.

A process on each executor fetches what the last commit names and is not there yet, then what was committed meanwhile,
and so on, until little is left. What is left at the boundary is fetched by the tasks themselves, as they need it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from midstream.changes.settings import FetchPolicy
from midstream.engine.cluster import Cluster
from midstream.engine.internals import map_in_arrow, run_job
from midstream.engine.pauses import await_pause
from midstream.engine.placer import Placer
from midstream.engine.rehearsal import rehearse
from midstream.engine.version import Version
from midstream.errors import StoreError
from midstream.placement.assign import Assignment, Moving, arrivals
from midstream.schemas import NOTHING
from midstream.state.manifest import Manifest, StepState
from midstream.state.store import Store
from midstream.state.warmup import WARMUPS, Warmth, WarmupJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")

_logger = logging.getLogger(__name__)

SILENCE_SECONDS = 30.0
"""They tell twice a second how far they are. One that does not has ended with its executor."""

_LOOK_SECONDS = 0.2
"""Between two looks whether a change still wants its state brought."""

MOST_PAUSES = 5
"""What is done executor by executor is done in so many groups at most, each in a pause of the stream: they may share
their machine with those of the stream, and what moves shall not wait for long."""

_BEGUN_AT_ONCE = 2
"""So many processes are begun in one pause at least. One after the other, the second of two began five seconds later,
and all that is to be copied waits for the last."""

UNMERGED_SECONDS = 30.0
"""For so long commits get no merges while state is copied: what a merge has made would be fetched at once, beside all
that is copied. Longer, deltas would pile up."""

LITTLE_BYTES = 16 * 2**20
"""What all moving instances have together, below which nothing is brought beforehand: 0.16 s at 100 MB/s. Many
instances have many small files until they are merged, and 34 of them, with 9 MB in place of 2, were brought in 17 s."""


@dataclass(frozen=True)
class _Begin:
    """The task that starts the processes of jobs, told by their numbers."""

    jobs: Sequence[WarmupJob]

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
    session: Callable[[], SparkSession | None]
    """That of the query, whose settings epochs run with; none before the first epoch."""
    progress: dict[int, Warmth] = field(default_factory=dict)
    """By modification: what its last pass has done so far, and what all of them have fetched."""
    _under_way: Callable[[], bool] | None = None
    _arrived: bool = False
    _begun: float = 0.0

    @property
    def moving(self) -> bool:
        """Whether state is on its way to other executors, or there and waiting for its boundary."""
        return self._under_way is not None and self._under_way()

    @property
    def unmerged(self) -> bool:
        """Whether commits had better get no merges: all that is to move is there and waits for its boundary, or the
        copying has only begun."""
        return self.moving and (self._arrived or time.monotonic() - self._begun < UNMERGED_SECONDS)

    def warm(self, modification: int, version: Version, wanted: Callable[[], bool]) -> None:
        """Come back when the executors that get instances have their state, or it is no longer wanted. If they cannot
        get it beforehand, they do when they need it: a change does not fail for that."""
        if self.placer.cluster.missing:
            return  # nothing moves
        settings, ranges = version.settings, {step: version.ranges(step) for step in version.compiled.keyed}
        try:
            after = self.placer.preview(ranges, settings.rules)
            moving = arrivals(self.placer.assignment, after)
            if moving and size_of(moving, self.latest().steps) < LITTLE_BYTES:
                return  # the first epoch fetches it faster than a process to bring it starts
            self._under_way, self._arrived, self._begun = wanted if moving else None, False, time.monotonic()
            apart = self.store.local_path(WARMUPS) is None  # or else everybody reads the same files
            if moving and settings.fetch_policy is FetchPolicy.HOT_FIRST:
                if apart:
                    self._warm(modification, moving, after, version, wanted)
                else:
                    self.rehearse(moving, after, version, wanted)
                self._arrived = True
            elif moving and apart and settings.fetch_policy is FetchPolicy.ON_DEMAND:
                cap = settings.fetch_bytes_per_second
                jobs = make_jobs(self.store, self.latest().steps, moving, cap, by_heat=False)
                launch(self.spark, self.placer.cluster, jobs)
        except Exception:
            _logger.warning("state is not brought to executors before they need it", exc_info=True)

    def _warm(
        self, modification: int, moving: Moving, after: Assignment, version: Version, wanted: Callable[[], bool]
    ) -> None:
        """Have the state copied, and a rehearsal made meanwhile."""

        def told(warmth: Warmth) -> None:
            self.progress[modification] = warmth

        jobs = make_jobs(self.store, {}, moving, version.settings.fetch_bytes_per_second, follow=True)
        try:
            pause = partial(await_pause, self.latest, wanted)
            launch(self.spark, self.placer.cluster, jobs, pause)
            self.rehearse(moving, after, version, wanted)
            warmth = attend(jobs, wanted, told)
            _logger.info("modification %d: %s", modification, warmth)
        finally:
            # What is committed until the boundary is brought there, too.
            threading.Thread(target=self._end, args=(jobs[0], wanted), name="midstream-warm-up", daemon=True).start()

    def rehearse(self, moving: Moving, after: Assignment, version: Version, wanted: Callable[[], bool]) -> None:
        """Have what the first epoch of instances that move would do for the first time done once."""
        for some in in_groups(list(moving)):
            session = self.session()
            if not await_pause(self.latest, wanted) or session is None:
                return
            try:
                state, arriving = version.state_after(self.latest()), {executor: moving[executor] for executor in some}
                rehearse(session, self.placer.cluster, self.store, version, state, after, arriving)
            except Exception:
                _logger.warning("instances that move begin unrehearsed", exc_info=True)
                return

    def _end(self, job: WarmupJob, wanted: Callable[[], bool]) -> None:
        """Have the processes of a job, and those begun with it, end when it is no longer wanted."""
        while wanted():
            time.sleep(_LOOK_SECONDS)
        try:
            stop(job)
        except StoreError:
            _logger.warning("a warm-up could not be told to end, and ends with its executor", exc_info=True)


def size_of(moving: Moving, steps: Mapping[str, StepState]) -> float:
    """About how many bytes of state ranges have, taking hashes for evenly spread."""
    return sum(
        steps[step].bytes * (range_.end - range_.start) / 2**64
        for ranges in moving.values()
        for step, of_step in ranges.items()
        if step in steps
        for range_ in of_step
    )


def make_jobs(
    store: Store,
    steps: Mapping[str, StepState],
    wanted: Moving,
    bytes_per_second: float | None,
    by_heat: bool = True,
    follow: bool = False,
) -> tuple[WarmupJob, ...]:
    """A job for every executor, which share the bytes a second. One that is to `follow` finds out itself what there is
    to fetch, commit by commit."""
    id_ = uuid.uuid4().hex
    share = bytes_per_second / len(wanted) if bytes_per_second else None
    return tuple(
        WarmupJob(
            id=id_,
            executor=executor,
            store=store,
            steps=steps,
            ranges={step: of_step for step, of_step in ranges.items() if follow or step in steps},
            bytes_per_second=share,
            by_heat=by_heat,
            follow=follow,
        )
        for executor, ranges in wanted.items()
    )


def bring(
    spark: SparkSession,
    cluster: Cluster,
    jobs: tuple[WarmupJob, ...],
    wanted: Callable[[], bool],
    pause: Callable[[], bool] = lambda: True,
) -> Warmth:
    """Have jobs done on their executors. There may be a `pause` before some are begun, which says whether to go on."""
    launch(spark, cluster, jobs, pause)
    return attend(jobs, wanted)


def attend(
    jobs: tuple[WarmupJob, ...], wanted: Callable[[], bool], told: Callable[[Warmth], None] = lambda warmth: None
) -> Warmth:
    """Come back when all jobs are finished, when one fails, or it is no longer wanted. Those that follow the commits go
    on until they are told to stop."""
    store = jobs[0].store
    last, heard = Warmth(), time.monotonic()
    while True:
        warmth = _together(read_warmth(store, job.path) for job in jobs)
        told(warmth)
        if warmth.finished:
            if not jobs[0].follow:
                store.delete([job.path for job in jobs])
            return warmth
        if warmth != last:
            last, heard = warmth, time.monotonic()
        elif time.monotonic() - heard > SILENCE_SECONDS:
            warmth = replace(warmth, error=f"nothing was heard of it for {SILENCE_SECONDS:.0f} s")
        if warmth.error or not wanted():
            stop(jobs[0])
            return warmth
        time.sleep(0.1)


def stop(job: WarmupJob) -> None:
    """Tell a job, and those begun with it, to end: they see it when they next tell how far they are. The next start
    sweeps the folder."""
    job.store.put(f"{job.stop}/now", b"")


def _together(several: Iterable[Warmth]) -> Warmth:
    each = list(several)
    return Warmth(
        total=sum(w.total for w in each),
        done=sum(w.done for w in each),
        fetched=sum(w.fetched for w in each),
        seconds=max(w.seconds for w in each),
        finished=all(w.finished for w in each),
        error=next((w.error for w in each if w.error), None),
    )


def launch(
    spark: SparkSession, cluster: Cluster, jobs: Sequence[WarmupJob], pause: Callable[[], bool] = lambda: True
) -> None:
    """Have each job begun on its executor. A few at a time: an executor that is new has libraries to load, and may
    share its machine with those of the stream."""
    location = {executor.id: executor.location for executor in cluster.executors()}
    for some in in_groups(jobs, at_least=_BEGUN_AT_ONCE):
        if not pause():
            return
        count = len(some)
        placed = cluster.placed(spark.range(0, count, 1, count), [location.get(job.executor, "") for job in some])
        run_job(map_in_arrow(placed, _Begin(some), NOTHING))


def in_groups(things: Sequence[T], at_least: int = 1) -> list[Sequence[T]]:
    """Things to be done in pauses.

    >>> in_groups("abcdefgh")
    ['ab', 'cd', 'ef', 'gh']
    >>> in_groups("abc", at_least=2)
    ['ab', 'c']
    """
    size = max(-(-len(things) // MOST_PAUSES), at_least)
    return [things[at : at + size] for at in range(0, len(things), size)]


def read_warmth(store: Store, path: str) -> Warmth:
    try:
        return Warmth(**json.loads(store.read(path).to_pybytes()))
    except StoreError as error:
        if error.error_class == "MISSING_OBJECT":
            return Warmth()  # it has not begun to tell
        raise
