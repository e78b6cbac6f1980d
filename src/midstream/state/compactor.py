"""Compaction beside the stream: one low-priority process that merges segments while epochs go on.

A process, not a thread or a Spark job: it takes no task slot and no time from the driver, and the operating system
gives it what the epochs leave.
"""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping

from midstream.errors import MidstreamError
from midstream.state.compaction import (
    CompactionJob,
    CompactionPolicy,
    CompactionResult,
    apply_compaction,
    plan_compaction,
)
from midstream.state.manifest import StepState, TableState
from midstream.state.merges import save_merges, take_merges
from midstream.state.store import Store


class Compactor:
    """Finds work after every commit, does one job at a time, and offers finished merges to the next commit."""

    def __init__(self, store: Store, policies: Mapping[str, CompactionPolicy], generation: int) -> None:
        self._store = store
        self._generation = generation
        self._policies = policies
        self._busy: CompactionJob | None = None
        self._finished: list[CompactionResult] = take_merges(store)
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._jobs: queue.Queue[CompactionJob | None] = queue.Queue()
        self._worker: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._serve, name="midstream-compactor", daemon=True)
        self._thread.start()

    def offer(self, steps: Mapping[str, StepState]) -> None:
        """After a commit: begin the most useful merge, unless one is under way."""
        with self._lock:
            if self._busy is not None or self._finished:
                return
            plans = (
                plan_compaction(id_, table, self._policies[id_], self._generation)
                for id_, step in steps.items()
                for table in step.tables.values()
                if id_ in self._policies
            )
            job = max((p for p in plans if p), key=lambda p: len(p.inputs), default=None)
            if job is not None:
                self._busy = job
                self._jobs.put(job)

    def apply(self, steps: Mapping[str, StepState]) -> dict[str, StepState]:
        """Before a commit: the steps with finished merges in place of their inputs."""
        with self._lock:
            finished, self._finished = self._finished, []
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        changed = dict(steps)
        for result in finished:
            step = changed.get(result.step)
            table = step.tables.get(result.table) if step else None
            merged: TableState | None = apply_compaction(table, result) if table else None
            if step and merged:
                changed[result.step] = StepState(step.ranges, {**step.tables, merged.spec.name: merged})
        return changed

    def in_flight(self) -> set[str]:
        """Ids of jobs whose files no manifest names yet, which a sweep must leave alone."""
        with self._lock:
            jobs = {result.id for result in self._finished}
            return jobs | {self._busy.id} if self._busy else jobs

    @property
    def idle(self) -> bool:
        with self._lock:
            return self._busy is None

    def close(self, finish: bool = False) -> None:
        """End. A merge under way is broken off, or finished when asked; finished ones are left to the next run."""
        self._jobs.put(None)
        if finish:
            self._thread.join()
        if self._worker is not None:
            self._worker.kill()
        self._thread.join(timeout=10)
        with self._lock:
            finished, self._finished = self._finished, []
        save_merges(self._store, finished)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                outcome = self._run(job)
            except (OSError, EOFError, pickle.PickleError):
                outcome = None  # the worker died: its files are orphans, the next commit plans the job again
                self._worker = None
            with self._lock:
                self._busy = None
                if isinstance(outcome, CompactionResult):
                    self._finished.append(outcome)
                elif isinstance(outcome, Exception):
                    self._failure = outcome

    def _run(self, job: CompactionJob) -> CompactionResult | Exception:
        if self._worker is None or self._worker.poll() is not None:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "midstream.state.compaction_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._worker.stdin
        assert self._worker.stdout
        pickle.dump((self._store, job), self._worker.stdin)
        self._worker.stdin.flush()
        outcome: CompactionResult | MidstreamError = pickle.load(self._worker.stdout)
        return outcome
