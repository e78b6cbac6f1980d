"""A quiet start: state that is one base, with nothing to merge for a long time.

Filling leaves runs and deltas behind, and the merges due for them go on for minutes at a state of gigabytes. What they
make are new files, which every executor fetches anew: measured meanwhile, that would pass for the cost of what is
measured.
"""

from __future__ import annotations

import time

import midstream as ms
from midstream.bench.progress import Progress
from midstream.engine.run import Run
from midstream.errors import MidstreamError
from midstream.state.compaction import CompactionPolicy, Planning, plan_base, plan_deltas, plan_runs

SMALL_EPOCH = 200
"""Rows of an epoch that is only there to commit merges: few, so that next to nothing is added to the base."""

EVERY_SECONDS = 0.5
"""Between those epochs. Merges have a low priority: epochs without a pause would hold them up."""

EAGER = CompactionPolicy(deltas=1, runs=2, dirty_ratio=0.01)
"""Merges all into the base but what these epochs add to it: without that bound it would be merged again at once."""

USUAL = CompactionPolicy()
BASE_LEVEL = 2
BESIDE_SHARE = 0.02
BESIDE_BYTES = 2**20
"""What may be left beside the base: a little of it, or in any case so much, which is nothing to fetch."""

QUIET_EPOCHS = 3
MOST_SECONDS = 1800.0


def merge_all(run: Run, step: str, progress: Progress) -> None:
    """Let a run go on with its (small) epochs until all but a little of a step's state is one base, and then until
    nothing is being merged and nothing due for some epochs. The run ends up with the usual policy."""
    deadline = time.monotonic() + MOST_SECONDS
    run.apply(ms.Tune(step, compaction=EAGER), timeout=120)
    while not is_one_base(run, step):
        progress.note(f"{len(base(run, step))} files of the base so far")
        _next_epoch(run, deadline)
    run.apply(ms.Tune(step, compaction=USUAL), timeout=120)
    quiet = 0
    while quiet < QUIET_EPOCHS:
        _next_epoch(run, deadline)
        calm = not run._runner.compactor.in_flight() and not _due(run, step) and is_one_base(run, step)
        quiet = quiet + 1 if calm else 0


def base(run: Run, step: str) -> frozenset[str]:
    """The files of a step's base: others when it was merged."""
    tables = run._runner.last.steps[step].tables.values()
    return frozenset(s.path for table in tables for s in table.segments if s.level == BASE_LEVEL)


def is_one_base(run: Run, step: str) -> bool:
    """Whether a step has a base, and next to nothing beside it."""
    state = run._runner.last.steps.get(step)
    held = base(run, step) if state else frozenset()
    if state is None or not held:
        return False
    beside = sum(s.bytes for table in state.tables.values() for s in table.segments if s.path not in held)
    return beside <= max(BESIDE_SHARE * state.bytes, BESIDE_BYTES)


def _due(run: Run, step: str) -> bool:
    tables = run._runner.last.steps[step].tables.values()
    planning = Planning(USUAL, generation=0)
    return any(plan(step, table, planning) for table in tables for plan in (plan_base, plan_runs, plan_deltas))


def _next_epoch(run: Run, deadline: float) -> None:
    epoch = run.last_epoch
    while run.last_epoch == epoch:
        if run.status == "failed" and run.exception is not None:
            raise run.exception
        if time.monotonic() > deadline:
            raise MidstreamError(
                "STILL_MERGING",
                f"State was still being merged after {MOST_SECONDS:.0f} s.",
                hint="give the machine less to do meanwhile, or measure fewer keys.",
            )
        time.sleep(0.05)
