"""Compaction beside the stream: low-priority processes that merge segments while epochs go on.

Processes, not threads or Spark jobs: they take no task slot and no time from the driver, and the operating system gives
them what the epochs leave. There are three, so that neither deltas nor runs pile up while a large base is merged.
"""

from __future__ import annotations

import logging
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from midstream.errors import StoreError
from midstream.state.compaction import (
    CompactionJob,
    CompactionPolicy,
    CompactionResult,
    Planning,
    apply_compaction,
    plan_base,
    plan_deltas,
    plan_runs,
)
from midstream.state.manifest import StepState, TableState
from midstream.state.merges import save_merges, take_merges
from midstream.state.store import Store

_logger = logging.getLogger(__name__)

Planner = Callable[[str, TableState, Planning], CompactionJob | None]

Deliver = Callable[[CompactionResult, Callable[[], bool]], None]
"""Brings what was merged to where it will be read; asks now and then whether that is still wanted."""


class Compactor:
    """Finds work after every commit, and offers finished merges to the next commit."""

    def __init__(self, store: Store, policies: Mapping[str, CompactionPolicy], generation: int) -> None:
        self._store = store
        self._generation = generation
        self.policies = policies
        self.deliver: Deliver = lambda result, wanted: None
        """Called before a merge is offered to a commit: from then on, epochs read what it made."""
        self.held: Callable[[], bool] = lambda: False
        """While it says so no merge of a base begins: it would make anew what is just being moved."""
        self.withheld: Callable[[], bool] = lambda: False
        """While it says so, commits get no merges: epochs are to find what they need where they run."""
        self._lock = threading.Lock()
        self._finished = take_merges(store)
        self._applied: list[CompactionResult] = []
        """Handed to a commit that is not known to be there yet."""
        self._announced: frozenset[str] = frozenset()
        """Merges that tasks have been told of."""
        self._ready: frozenset[str] = frozenset()
        """Those that tasks of an earlier epoch have been told of."""
        self._awaited = store.local_path("segments") is None
        """Whether a commit takes only what tasks of an earlier epoch were told of: it has to be brought first."""
        self._failure: Exception | None = None
        self._lanes = [_Lane(name, planner, store, self._deliver, self._done) for name, planner in _LANES.items()]

    def offer(self, steps: Mapping[str, StepState]) -> None:
        """After a commit: begin the most useful merges, where none is under way."""
        held = self.held()
        with self._lock:
            self._applied = []
            if self._finished:
                return  # planned from a state that the next commit changes
            for lane in self._lanes:
                if lane.busy is None and not (held and lane.plan is plan_base):
                    taken = frozenset(s.path for other in self._lanes if other.busy for s in other.busy.inputs)
                    plans = (
                        lane.plan(id_, table, Planning(self.policies[id_], self._generation, taken))
                        for id_, step in steps.items()
                        for table in step.tables.values()
                        if id_ in self.policies
                    )
                    job = max((p for p in plans if p), key=lambda p: len(p.inputs), default=None)
                    if job is not None:
                        lane.begin(job)

    def announce(self) -> list[CompactionResult]:
        """Before an epoch: the merges its tasks are to hear of. They bring what they will need, and the commit of the
        next epoch may name it."""
        withheld = self.withheld()
        with self._lock:
            self._ready = self._announced
            if withheld or not self._awaited:
                return []
            found = [result for result in self._finished if result.id not in self._announced]
            self._announced |= {result.id for result in found}
            return found

    def apply(self, steps: Mapping[str, StepState]) -> dict[str, StepState]:
        """Before a commit: the steps with finished merges in place of their inputs."""
        withheld = self.withheld()
        with self._lock:
            finished: list[CompactionResult] = []
            if not withheld:
                finished = [result for result in self._finished if not self._awaited or result.id in self._ready]
                self._finished = [result for result in self._finished if result not in finished]
                self._announced -= {result.id for result in finished}
            self._applied += finished
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        changed = dict(steps)
        for result in finished:
            step = changed.get(result.step)
            table = step.tables.get(result.table) if step else None
            merged: TableState | None = apply_compaction(table, result) if table else None
            if step and merged:
                changed[result.step] = replace(step, tables={**step.tables, merged.spec.name: merged})
        return changed

    def in_flight(self) -> set[str]:
        """Ids of jobs whose files no manifest names yet, as far as is known here: a sweep must leave them alone."""
        with self._lock:
            finished = {result.id for result in (*self._finished, *self._applied)}
            return finished | {lane.busy.id for lane in self._lanes if lane.busy}

    @property
    def idle(self) -> bool:
        with self._lock:
            return not any(lane.busy for lane in self._lanes)

    def close(self, finish: bool = False) -> None:
        """End. Merges under way are broken off, or finished when asked; finished ones are left to the next run."""
        for lane in self._lanes:
            lane.close(finish)
        with self._lock:
            finished, self._finished = self._finished, []
        save_merges(self._store, finished)

    def _deliver(self, result: CompactionResult, wanted: Callable[[], bool]) -> None:
        self.deliver(result, wanted)

    def _done(self, lane: _Lane, outcome: CompactionResult | Exception | None) -> None:
        with self._lock:
            lane.busy = None
            if isinstance(outcome, CompactionResult):
                self._finished.append(outcome)
            elif isinstance(outcome, StoreError):
                # The next commit plans it again, and fails itself if the store is still not to be reached.
                _logger.warning("a merge was broken off: %s", outcome)
            elif outcome is not None:
                self._failure = outcome


_LANES: Mapping[str, Planner] = {"base": plan_base, "runs": plan_runs, "deltas": plan_deltas}


class _Lane:
    """One process and the thread that serves it, a job at a time."""

    def __init__(
        self,
        name: str,
        plan: Planner,
        store: Store,
        deliver: Deliver,
        done: Callable[[_Lane, CompactionResult | Exception | None], None],
    ) -> None:
        self.plan = plan
        self.busy: CompactionJob | None = None
        self._store = store
        self._deliver = deliver
        self._done = done
        self._closing = False
        self._jobs: queue.Queue[CompactionJob | None] = queue.Queue()
        self.worker: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._serve, name=f"midstream-compactor-{name}", daemon=True)
        self._thread.start()

    def begin(self, job: CompactionJob) -> None:
        self.busy = job
        self._jobs.put(job)

    def close(self, finish: bool) -> None:
        self._closing = True
        self._jobs.put(None)
        if finish:
            self._thread.join()
        worker = self.worker
        if worker is not None:
            worker.kill()
        self._thread.join(timeout=10)
        if worker is not None:
            _bury(worker)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                outcome = self._run(job)
            except (OSError, EOFError, pickle.PickleError):
                outcome = None  # the worker died: its files are orphans, the next commit plans the job again
                if self.worker is not None:
                    _bury(self.worker)
                self.worker = None
            if isinstance(outcome, CompactionResult):
                self._deliver(outcome, lambda: not self._closing)
            self._done(self, outcome)

    def _run(self, job: CompactionJob) -> CompactionResult | Exception | None:
        if self.worker is None or self.worker.poll() is not None:
            self.worker = subprocess.Popen(
                [sys.executable, "-m", "midstream.state.compaction_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self.worker.stdin
        assert self.worker.stdout
        pickle.dump((self._store, job), self.worker.stdin)
        self.worker.stdin.flush()
        outcome: CompactionResult | Exception = pickle.load(self.worker.stdout)
        return outcome


def _bury(worker: subprocess.Popen[bytes]) -> None:
    """Leave nothing of a process behind: neither its entry in the system's table nor its pipes."""
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was still to be written has nobody to go to
                pipe.close()
