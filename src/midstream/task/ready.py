"""A task that does nothing but be there: its Python worker has then loaded what the tasks of an epoch need."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import midstream.task.keyed  # noqa: F401 (loaded for the tasks to come)
from midstream.state.tables import KeyedFunction, TimedFunction

_STAY_SECONDS = 0.1
"""Long enough that such tasks run beside each other, each in a worker of its own."""


@dataclass(frozen=True)
class BeReady:
    """Brings along the functions that the tasks to come will call: loading them loads the modules they are in."""

    functions: tuple[KeyedFunction | TimedFunction, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.array(np.zeros(1))  # pyarrow loads pandas, if there is one, when it first meets an array of numpy
        for _ in batches:
            time.sleep(_STAY_SECONDS)
        yield from ()
