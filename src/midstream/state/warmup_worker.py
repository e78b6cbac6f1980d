"""The process that warms a cache up: one job on standard input; how far it is goes to the store.

A process of its own, because it outlives the task that starts it, and takes no task slot from the stream. It ends with
the executor it was started by.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from midstream.errors import StoreError
from midstream.state.cache import process_cache
from midstream.state.warmup import COPYING_NICENESS, Warmth, WarmupJob, follow, warm_up

NICENESS = 5
"""Below the stream's own processes, and above that of what copies: all waits until it has begun."""

_started: list[subprocess.Popen[bytes]] = []


def begin(job: WarmupJob) -> None:
    """Start a process for a job and leave it to itself."""
    _started[:] = [worker for worker in _started if worker.poll() is None]
    packages = str(Path(__file__).parents[2])
    path = os.pathsep.join([packages, *filter(None, [os.environ.get("PYTHONPATH")])])
    worker = subprocess.Popen(
        [sys.executable, "-m", "midstream.state.warmup_worker", str(_executor())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "MIDSTREAM_CACHE_DIR": str(process_cache().directory)},
        process_group=0,  # Spark ends the group of its workers when it likes
    )
    _started.append(worker)
    assert worker.stdin
    with worker.stdin as jobs:
        pickle.dump(job, jobs)


def _executor() -> int:
    """The process of the executor: parent of the daemon whose child this worker is. 0 when that is not known."""
    with suppress(OSError, ValueError):
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        return int(status.rpartition(")")[2].split()[1])
    return 0


def _is_there(process: int) -> bool:
    return process <= 1 or Path(f"/proc/{process}").exists()


def main() -> None:
    os.nice(NICENESS)
    executor = int(sys.argv[1])
    job: WarmupJob = pickle.load(sys.stdin.buffer)
    os.nice(COPYING_NICENESS)  # before the store is asked anything: its threads begin then, and take after this one

    def tell(warmth: Warmth) -> bool:
        if not _is_there(executor):
            return False
        try:
            if any(True for _ in job.store.list(job.stop)):
                return False
            job.store.put(job.path, json.dumps(warmth.to_json()).encode())
        except StoreError as error:
            # It goes on, and tells how far it is when the store listens again.
            print(f"a warm-up cannot tell how far it is: {error}", file=sys.stderr)
        return True

    try:
        if job.follow:
            follow(job, process_cache(), tell)
        else:
            tell(warm_up(job, process_cache(), tell))
    except Exception as error:
        tell(Warmth(error=f"{type(error).__name__}: {error}"))
        raise


if __name__ == "__main__":
    main()
