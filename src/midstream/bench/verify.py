"""Counts by key against an independent batch computation on exactly the rows that were processed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from midstream.bench.contender import Counting
from midstream.bench.progress import Progress
from midstream.bench.workload import Workload


def counts_are_right(
    spark: SparkSession, workload: Workload, stopped: Counting, directory: Path, progress: Progress
) -> bool:
    """Whether a stopped contender has each key once, with the number of its rows up to the last commit."""
    progress.phase(f"{stopped.name}: comparing the counts with a batch computation")
    counts = stopped.counts()
    rows = stopped.rows_committed()
    target = directory / "expected"
    workload.expected(spark, rows).write.parquet(str(target))
    return same_counts(counts, pq.read_table(target, columns=["key", "n"]), workload.keys)


def same_counts(counts: pa.Table, expected: pa.Table, keys: int) -> bool:
    """Whether two tables of `key` and `n`, keys from 0 to `keys` - 1, say the same in any order."""
    return counts.num_rows == expected.num_rows and np.array_equal(_by_key(counts, keys), _by_key(expected, keys))


def _by_key(counts: pa.Table, keys: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Counts by position, -1 where a key is missing; keys are 0 … keys - 1."""
    key, n = (counts[name].fill_null(-1).to_numpy() for name in ("key", "n"))
    dense = np.full(keys, -1, dtype=np.int64)
    known = (key >= 0) & (key < keys)
    dense[key[known]] = n[known]
    return dense
