"""The process that warms a cache up: one job on standard input; how far it is goes to the store.

A process of its own, because it outlives the task that starts it, and takes no task slot from the stream.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

from midstream.state.cache import process_cache
from midstream.state.warmup import Warmth, WarmupJob, warm_up

NICENESS = 10


def begin(job: WarmupJob) -> None:
    """Start a process for a job and leave it to itself."""
    packages = str(Path(__file__).parents[2])
    path = os.pathsep.join([packages, *filter(None, [os.environ.get("PYTHONPATH")])])
    worker = subprocess.Popen(
        [sys.executable, "-m", "midstream.state.warmup_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    assert worker.stdin
    with worker.stdin as jobs:
        pickle.dump(job, jobs)


def main() -> None:
    os.nice(NICENESS)
    job: WarmupJob = pickle.load(sys.stdin.buffer)

    def tell(warmth: Warmth) -> bool:
        if any(True for _ in job.store.list(job.stop)):
            return False
        job.store.put(job.path, json.dumps(warmth.to_json()).encode())
        return True

    try:
        tell(warm_up(job, process_cache(), tell))
    except Exception as error:
        tell(Warmth(error=f"{type(error).__name__}: {error}"))
        raise


if __name__ == "__main__":
    main()
