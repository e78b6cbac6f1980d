"""What epochs will read is brought while the stream pauses: a merge's files take the place of files that are here, and
a commit is about to name them.

By a thread of the Python worker, which is there anyhow. A process on each executor would cost more than a small merge.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from midstream.state.cache import BlockCache, process_cache
from midstream.state.hashspace import HashRange
from midstream.state.manifest import StepState, TableState
from midstream.state.segment import SegmentInfo
from midstream.state.store import Store
from midstream.state.warmup import COPYING_NICENESS, WarmupJob, warm_up

_logger = logging.getLogger(__name__)

_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Ahead:
    """Files by table of a step, and how fast each instance may bring its share of them."""

    files: Mapping[str, tuple[SegmentInfo, ...]]
    bytes_per_second: float | None = None

    def bring(self, store: Store, tables: Mapping[str, TableState], range_: HashRange) -> threading.Thread:
        """Begin to bring what lies in a range, beside whatever comes next."""
        wanted = {name: replace(tables[name], segments=files) for name, files in self.files.items() if name in tables}
        steps = {"": StepState((range_,), wanted)}
        job = WarmupJob("", "", store, steps, {"": (range_,)}, self.bytes_per_second)
        thread = threading.Thread(target=_bring, args=(job, _cache(os.getpid())), name="midstream-ahead", daemon=True)
        thread.start()
        return thread


def _bring(job: WarmupJob, cache: BlockCache) -> None:
    with suppress(OSError):
        os.nice(COPYING_NICENESS)  # on Linux that of this thread, and of those it starts
    try:
        with _one_at_a_time:
            warm_up(job, cache, lambda _: True)
    except Exception:
        _logger.warning("what was merged is fetched by the tasks that need it", exc_info=True)


@lru_cache(maxsize=1)
def _cache(process: int) -> BlockCache:
    """The same copies, counted apart: what tasks had to wait for is told of them alone."""
    of_tasks = process_cache()
    return BlockCache(of_tasks.directory, of_tasks.max_bytes, max_maps=1)
