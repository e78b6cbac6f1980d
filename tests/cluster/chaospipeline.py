"""The pipeline of the chaos run: an aggregate, a function of the user's and windows with a sink each, their input, and
what must come of it, computed without Spark.

One file is one epoch, and its rows follow from its number alone: whoever comes later can make all of them again.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark import cloudpickle

import midstream as ms
from tests.engine.harness import Inbox
from tests.eventtime.oracle import START
from tests.modify.sequences import written

# Workers get the function below by value and need not be able to import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

KEYS = 30_000
"""All of them come in the first epoch, so that there is state to move; later ones have some, the first of them most."""
ROWS = 200
HOT = 0.3
"""Of the rows that one key has: enough to be kept in parts."""
STEPS = ("sums", "seen", "windows")
SECONDS, WINDOW, BUCKETS = 4, 20, 50
"""Of event time in an epoch, and in a window; and how many keys windows have."""


def see(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Counts rows by key and keeps the greatest value; tells which instance did, on which executor's cache."""
    from pyspark import TaskContext

    from midstream.state.cache import process_cache

    found = {row["k"]: (row["n"], row["top"]) for row in state.to_pylist()}
    for key, value in zip(rows.column("k").to_pylist(), rows.column("v").to_pylist(), strict=True):
        n, top = found.get(key, (0, value))
        found[key] = (n + 1, max(top, value))
    context = TaskContext.get()
    assert context is not None
    kept = {
        "k": pa.array(list(found), pa.int64()),
        "n": pa.array([n for n, _ in found.values()], pa.int64()),
        "top": pa.array([top for _, top in found.values()], pa.int64()),
    }
    place = {
        "instance": pa.array([context.partitionId()] * len(found), pa.int64()),
        "place": pa.array([process_cache().directory.name] * len(found), pa.string()),
    }
    return pa.table({**kept, **place}), pa.table(kept)


def pipeline(root: Path) -> ms.Pipeline:
    directory, schema = str(inbox(root).directory), SCHEMA
    rows = ms.source(
        "events",
        lambda spark: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(directory),
        event_time="at",
    )
    keyed = rows.key_by("k")
    buckets = rows.sql("buckets", f"SELECT k % {BUCKETS} AS bucket, v, at FROM input").key_by("bucket")
    windows = buckets.window(ms.tumbling(f"{WINDOW} seconds")).aggregate(
        "windows", n="count(*)", s="sum(v)", parallelism=3
    )
    sums = keyed.aggregate("sums", n="count(*)", s="sum(v)", parallelism=4)
    seen = keyed.stateful(
        "seen",
        see,
        state="n bigint, top bigint",
        output="k bigint, n bigint, top bigint, instance bigint, place string",
        parallelism=4,
    )
    return ms.pipeline(
        sums.sink("sums_out", ms.sinks.parquet(root / "sums")),
        seen.sink("seen_out", ms.sinks.delta(root / "seen", mode="append")),
        windows.sink("windows_out", ms.sinks.parquet(root / "windows")),
    )


SCHEMA = "k bigint, v bigint, at timestamp"


class Events(Inbox):
    """Rows get the time of their epoch."""

    def add(self, *rows: tuple[Any, ...]) -> None:
        epoch = len(list(self.directory.glob("*.parquet")))
        super().add(*((key, value, START + timedelta(seconds=second_of(epoch, value))) for key, value in rows))


def second_of(epoch: int, value: int) -> int:
    return SECONDS * epoch + value % SECONDS


def inbox(root: Path) -> Inbox:
    (root / "in").mkdir(parents=True, exist_ok=True)
    return Events(root / "in", SCHEMA)


def rows_of(epoch: int) -> list[tuple[int, int]]:
    chance = random.Random(epoch)
    if epoch == 0:
        return [(key, chance.randrange(10**6)) for key in range(KEYS)]
    return [
        (0 if chance.random() < HOT else int(KEYS * chance.random() ** 3), chance.randrange(10**6)) for _ in range(ROWS)
    ]


@dataclass
class Oracle:
    """What state, and the rows of both sinks, must be after some epochs."""

    sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    sums_out: list[list[dict[str, int]]] = field(default_factory=list)
    seen_out: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    windows: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    windows_out: list[list[tuple[int, int, int, int]]] = field(default_factory=list)

    @classmethod
    def after(cls, epochs: int) -> Oracle:
        oracle = cls()
        for epoch in range(epochs):
            oracle._take(rows_of(epoch))
            oracle._put_in_windows(epoch)
        return oracle

    def _take(self, rows: list[tuple[int, int]]) -> None:
        for key, value in rows:
            n, s = self.sums.get(key, (0, 0))
            self.sums[key] = (n + 1, s + value)
            n, top = self.seen.get(key, (0, value))
            self.seen[key] = (n + 1, max(top, value))
        keys = {key for key, _ in rows}
        changed = [{"k": key, "n": self.sums[key][0], "s": self.sums[key][1]} for key in keys]
        self.sums_out.append(sorted(changed, key=lambda row: row["k"]))
        self.seen_out.update((key, *self.seen[key]) for key in keys)

    def _put_in_windows(self, epoch: int) -> None:
        """Times rise from epoch to epoch, so that no row is late."""
        watermark = -1
        for key, value in rows_of(epoch):
            second = second_of(epoch, value)
            watermark = max(watermark, second)
            window = (key % BUCKETS, second // WINDOW * WINDOW)
            n, s = self.windows.get(window, (0, 0))
            self.windows[window] = (n + 1, s + value)
        over = sorted(window for window in self.windows if window[1] + WINDOW <= watermark)
        self.windows_out.append([(*window, *self.windows.pop(window)) for window in over])


def check_sinks(root: Path, epochs: int, oracle: Oracle) -> None:
    """Compare every row of both sinks; a row too many or too few is told with its epoch or its key."""
    folders = {int(path.name.partition("=")[2]) for path in (root / "sums").glob("epoch=*")}
    assert folders == set(range(epochs)), "the aggregate's sink has one folder an epoch"
    for epoch, expected in enumerate(oracle.sums_out):
        found = sorted(written(root / "sums", epoch), key=lambda row: row["k"])
        assert found == expected, f"rows of the aggregate's sink in epoch {epoch}"
    for epoch, over in enumerate(oracle.windows_out):
        rows = written(root / "windows", epoch, by="bucket")
        given = sorted((r["bucket"], int((r["window_start"] - START).total_seconds()), r["n"], r["s"]) for r in rows)
        assert given == over, f"windows that were over in epoch {epoch}"
    found_seen = Counter((row["k"], row["n"], row["top"]) for row in seen_rows(root))
    assert found_seen - oracle.seen_out == Counter(), "rows of the function's sink that should not be there"
    assert oracle.seen_out - found_seen == Counter(), "rows of the function's sink that are missing"


def check_state(sums: list[dict[str, Any]], seen: list[dict[str, Any]], oracle: Oracle) -> None:
    assert sorted((row["k"], row["n"], row["s"]) for row in sums) == sorted((k, *v) for k, v in oracle.sums.items())
    assert sorted((row["k"], row["n"], row["top"]) for row in seen) == sorted((k, *v) for k, v in oracle.seen.items())


def ran_where(root: Path, epoch: int) -> dict[int, str]:
    """The executor each instance of the function ran on in an epoch, by the rows it wrote."""
    so_far = Oracle.after(epoch + 1).seen
    rows = {(key, so_far[key][0]) for key, _ in rows_of(epoch)}
    places = {(row["instance"], row["place"]) for row in seen_rows(root) if (row["k"], row["n"]) in rows}
    # Instances of all steps run in one stage, one step behind the other.
    first = min(instance for instance, _ in places)
    found = {instance - first: place.removeprefix("cache-") for instance, place in places}
    assert len(found) == len(places), f"an instance ran in two places in epoch {epoch}: {places}"
    return found


def seen_rows(root: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(DeltaTable(str(root / "seen")).to_pyarrow_table()).to_pylist()
    return rows
