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
from midstream.state.hashspace import WHOLE
from midstream.state.manifest import Manifest
from midstream.state.reader import PartitionSnapshot
from midstream.state.store import Store


def counts_are_right(
    spark: SparkSession, workload: Workload, stopped: Counting, directory: Path, progress: Progress
) -> bool:
    """Whether a stopped contender has each key once, with the number of its rows up to the last commit."""
    progress.phase(f"{stopped.name}: comparing the counts with a batch computation")
    return matches_batch(spark, workload, stopped.counts(), stopped.rows_committed(), directory)


def matches_batch(spark: SparkSession, workload: Workload, counts: pa.Table, rows: int, directory: Path) -> bool:
    """Whether these are the counts of the first `rows` rows."""
    target = directory / "expected"
    workload.expected(spark, rows).write.parquet(str(target))
    return same_counts(counts, pq.read_table(target, columns=["key", "n"]), workload.keys)


def counts_kept(store: Store, manifest: Manifest, step: str) -> pa.Table:
    """`key` and `n` of a step that counts, read piece by piece: what it keeps beside them may be large."""
    tables = manifest.steps[step].tables
    (name,) = tables
    pieces = PartitionSnapshot(store, tables, WHOLE).scan(name)
    return pa.concat_tables([piece.select([0, 1]).rename_columns(["key", "n"]) for piece in pieces])


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
