"""A pipeline of several steps with a sink of each kind, its input, and an oracle that computes all of it without Spark.

The oracle follows the epochs Spark planned (mostly one file of each source), so it knows not only the end but what each
epoch must have written.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.run import Run
from midstream.state.compaction import CompactionPolicy
from midstream.state.ledger import committed_epochs, read_manifest
from midstream.state.query import read_table
from midstream.state.store import Store, open_store
from tests.engine.harness import files_before

ROWS = 60
CUSTOMERS = [None, *(f"customer {number}" for number in range(40))]
REGIONS = ["north", "south", "east", "west", None]
COLUMNS = "seq bigint, customer string, region string, amount bigint"

RUNNING = pa.schema([("region", pa.string()), ("seq", pa.int64()), ("position", pa.int64()), ("balance", pa.int64())])
BALANCES = pa.schema([("region", pa.string()), ("entries", pa.int64()), ("balance", pa.int64())])

SOURCES = ("orders", "refunds")
SINKS = ("changed", "latest", "history", "calls", "sizes")
WINDOW, DELAY = 100, 30
"""Seconds of the windows, and by how many their sources may be out of order; `seq` is the time."""
_FIRST_FILE_AT = 1_700_000_000

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Shop:
    """Where one run of the pipeline has its input, its checkpoint and its sinks."""

    root: Path
    dsn: str
    schema: str
    """The schema of the PostgreSQL database that is this run's own."""
    url: str | None = None
    """Where the checkpoint lies, when not beside the rest."""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> str:
        return self.url or str(self.root / "checkpoint")

    @property
    def store(self) -> Store:
        return open_store(self.checkpoint, self.options)

    def create(self) -> Shop:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f'CREATE SCHEMA "{self.schema}"')
        for source in SOURCES:
            (self.root / source).mkdir(parents=True)
        (self.root / "calls").mkdir()
        return self

    def add_epochs(self, count: int) -> None:
        """Input for some more epochs; the same rows whenever and wherever it is made."""
        first = self.epochs
        for epoch in range(first, first + count):
            for source in SOURCES:
                lines = [json.dumps(dict(zip(_names(), row, strict=True))) for row in rows_of(source, epoch)]
                hidden = self.root / source / f".{epoch:05d}.json"
                hidden.write_text("\n".join(lines))
                # The file source goes by modification times, which two files written at once may share.
                os.utime(hidden, (_FIRST_FILE_AT + epoch,) * 2)
                hidden.rename(self.root / source / f"{epoch:05d}.json")

    @property
    def epochs(self) -> int:
        """How many files of input each source has, an epoch each when nothing comes between."""
        return len(list((self.root / SOURCES[0]).glob("[0-9]*.json")))

    def committed(self) -> int:
        """The last committed epoch, -1 when there is none."""
        return max(committed_epochs(self.store), default=-1)

    def start(self, spark: SparkSession, **options: Any) -> Run:
        return self.flow().start(spark, self.checkpoint, store_options=self.options, **options)

    def flow(self, compaction: CompactionPolicy = CompactionPolicy(deltas=3, runs=2)) -> ms.Pipeline:  # noqa: B008
        money = self._source("orders").union("money", self._source("refunds"))
        totals = money.key_by("customer").aggregate(
            "totals", n=F.count("*"), spent=F.sum("amount"), most=F.max("amount"), compaction=compaction
        )
        running = money.key_by("region").stateful(
            "running",
            _running(),
            state="entries bigint, balance bigint",
            output="region string, seq bigint, position bigint, balance bigint",
            compaction=compaction,
        )
        parity = running.transform("parity", lambda df: df.selectExpr("seq % 7 AS bucket", "balance"))
        sizes = parity.key_by("bucket").aggregate(
            "buckets", n=F.count("*"), lowest=F.min("balance"), compaction=compaction
        )
        windows = money.key_by("region").window(ms.tumbling(f"{WINDOW} seconds"))
        windowed = windows.aggregate("windows", n=F.count("*"), spent=F.sum("amount"), compaction=compaction)
        return ms.pipeline(
            windowed.sink("closed", ms.sinks.parquet(self.root / "closed")),
            totals.sink("changed", ms.sinks.parquet(self.root / "changed")),
            totals.sink("latest", ms.sinks.postgres(self.dsn, f"{self.schema}.latest", mode="upsert")),
            running.sink("history", ms.sinks.delta(str(self.root / "history"))),
            running.sink("calls", ms.sinks.for_each_epoch(_write_call(self.root / "calls"))),
            sizes.sink("sizes", ms.sinks.postgres(self.dsn, f"{self.schema}.sizes", mode="append")),
        )

    def run_to_end(self, spark: SparkSession) -> Run:
        """Run until all input is committed, and end."""
        run = self.start(spark)
        run.process_available()
        run.stop()
        return run

    def _source(self, id: str) -> ms.Stream:
        directory = str(self.root / id)

        def load(spark: SparkSession) -> DataFrame:
            files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(directory)
            return files.selectExpr("*", "timestamp_seconds(seq) AS at")

        return ms.source(id, load, event_time="at", delay=f"{DELAY} seconds")

    def check(self) -> None:
        """Compare state and every sink with the oracle: nothing lost, nothing twice."""
        oracle = Oracle(self._planned())
        assert self._state("totals") == oracle.totals
        assert self._state("running") == oracle.balances
        assert self._state("buckets") == oracle.buckets
        assert self._closed() == oracle.closed
        assert self._changed() == oracle.changed
        assert self._table("latest", "customer, n, spent, most") == Counter(oracle.latest)
        assert self._history() == Counter(oracle.all_running)
        assert self._calls() == {epoch: sorted(rows, key=repr) for epoch, rows in oracle.running.items()}
        assert self._table("sizes", "bucket, n, lowest") == Counter(oracle.sizes)

    def _planned(self) -> list[dict[str, range]]:
        """Which files of each source Spark's log gives to each epoch: all of them, in order, each once."""
        planned: list[dict[str, range]] = []
        read = dict.fromkeys(SOURCES, 0)
        for epoch in range(self.committed() + 1):
            _, _, *offsets = self._offsets(epoch).splitlines()
            until = {source: files_before(text) for source, text in zip(SOURCES, offsets, strict=True)}
            planned.append({source: range(read[source], until[source]) for source in SOURCES})
            read = until
        assert read == dict.fromkeys(SOURCES, self.epochs), "not all input was read"
        return planned

    def _offsets(self, epoch: int) -> str:
        """Spark's log, where there is one beside the manifests, remembers more epochs than are retained."""
        if self.url is None:
            return Path(self.checkpoint, "spark", "offsets", str(epoch)).read_text()
        return read_manifest(self.store, epoch).offsets

    def _state(self, step: str) -> dict[Any, Row]:
        table = read_table(self.store, read_manifest(self.store, self.committed()), step)
        rows = [tuple(row.values()) for row in table.to_pylist()]
        state = {row[0]: row[1:] for row in rows}
        assert len(state) == len(rows), f"a key of {step} is there twice"
        return state

    def _changed(self) -> dict[int, dict[Any, Row]]:
        found: dict[int, dict[Any, Row]] = {}
        for folder in (self.root / "changed").glob("epoch=*"):
            rows = [tuple(row.values()) for row in pq.read_table(folder, partitioning=None).to_pylist()]
            epoch = found[int(folder.name.removeprefix("epoch="))] = {row[0]: row[1:] for row in rows}
            assert len(epoch) == len(rows), f"a key is in {folder} twice"
        return found

    def _closed(self) -> dict[int, dict[tuple[Any, int], Row]]:
        found: dict[int, dict[tuple[Any, int], Row]] = {}
        for folder in (self.root / "closed").glob("epoch=*"):
            rows = pq.read_table(folder, partitioning=None).to_pylist()
            epoch = found[int(folder.name.removeprefix("epoch="))] = {
                (row["region"], int(row["window_start"].timestamp())): (row["n"], row["spent"]) for row in rows
            }
            assert len(epoch) == len(rows), f"a window is in {folder} twice"
        return found

    def _history(self) -> Counter[Row]:
        table = pa.table(DeltaTable(str(self.root / "history")).to_pyarrow_table())
        return Counter(tuple(row[name] for name in RUNNING.names) for row in table.to_pylist())

    def _calls(self) -> dict[int, list[Row]]:
        files = (self.root / "calls").glob("*.json")
        return {
            int(file.stem): sorted((tuple(row) for row in json.loads(file.read_text())), key=repr) for file in files
        }

    def _table(self, name: str, columns: str) -> Counter[Row]:
        with psycopg.connect(self.dsn) as connection:
            return Counter(connection.execute(f'SELECT {columns} FROM "{self.schema}".{name}').fetchall())


def rows_of(source: str, file: int) -> list[Row]:
    """The rows in a file of a source: seq, customer, region, amount."""
    choose = random.Random(f"{source} {file}")
    sign, parity = (1, 0) if source == "orders" else (-1, 1)
    return [
        (
            2 * (file * ROWS + number) + parity,
            choose.choice(CUSTOMERS),
            choose.choice(REGIONS),
            sign * choose.randint(1, 10_000),
        )
        for number in range(ROWS)
    ]


@dataclass
class Oracle:
    """What the pipeline must have done after some epochs: plain loops over the input."""

    planned: list[dict[str, range]]
    totals: dict[Any, Row] = field(default_factory=dict)
    balances: dict[Any, Row] = field(default_factory=dict)
    buckets: dict[Any, Row] = field(default_factory=dict)
    changed: dict[int, dict[Any, Row]] = field(default_factory=dict)
    running: dict[int, list[Row]] = field(default_factory=dict)
    sizes: list[Row] = field(default_factory=list)
    closed: dict[int, dict[tuple[Any, int], Row]] = field(default_factory=dict)
    _open: dict[tuple[Any, int], Row] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for epoch, files in enumerate(self.planned):
            self._add(
                epoch, sorted(row for source in SOURCES for file in files[source] for row in rows_of(source, file))
            )
            self._close(epoch, files)

    def _add(self, epoch: int, rows: list[Row]) -> None:
        changed: set[Any] = set()
        touched: set[int] = set()
        self.running[epoch] = []
        for seq, customer, region, amount in rows:
            n, spent, most = self.totals.get(customer, (0, 0, amount))
            self.totals[customer] = n + 1, spent + amount, max(most, amount)
            changed.add(customer)
            entries, balance = self.balances.get(region, (0, 0))
            self.balances[region] = entries + 1, balance + amount
            self.running[epoch].append((region, seq, entries + 1, balance + amount))
            count, lowest = self.buckets.get(seq % 7, (0, balance + amount))
            self.buckets[seq % 7] = count + 1, min(lowest, balance + amount)
            touched.add(seq % 7)
            window = region, seq // WINDOW * WINDOW
            n, spent = self._open.get(window, (0, 0))
            self._open[window] = n + 1, spent + amount
        if changed:
            self.changed[epoch] = {customer: self.totals[customer] for customer in changed}
        self.sizes += [(bucket, *self.buckets[bucket]) for bucket in touched]

    def _close(self, epoch: int, files: dict[str, range]) -> None:
        """Windows that are over: the latest row of each source less the delay has reached their end."""
        for source in SOURCES:
            for file in files[source]:
                self._read[source] = max(row[0] for row in rows_of(source, file))
        watermark = min(self._read.values()) - DELAY if len(self._read) == len(SOURCES) else None
        over = {key for key in self._open if watermark is not None and key[1] + WINDOW <= watermark}
        if over:
            self.closed[epoch] = {key: self._open.pop(key) for key in over}

    @property
    def latest(self) -> list[Row]:
        return [(customer, *values) for customer, values in self.totals.items()]

    @cached_property
    def all_running(self) -> list[Row]:
        return [row for rows in self.running.values() for row in rows]


def _names() -> list[str]:
    return [column.split()[0] for column in COLUMNS.split(", ")]


def _running() -> Callable[..., Any]:
    # A closure, so that workers get it by value and need not be able to import the tests.
    running_schema, balances_schema = RUNNING, BALANCES

    def running(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        balances = {row["region"]: (row["entries"], row["balance"]) for row in state.to_pylist()}
        output = []
        for row in sorted(rows.to_pylist(), key=lambda row: row["seq"]):
            entries, balance = balances.get(row["region"], (0, 0))
            entries, balance = balances[row["region"]] = entries + 1, balance + row["amount"]
            output.append({"region": row["region"], "seq": row["seq"], "position": entries, "balance": balance})
        kept = [{"region": region, "entries": n, "balance": balance} for region, (n, balance) in balances.items()]
        return pa.Table.from_pylist(output, running_schema), pa.Table.from_pylist(kept, balances_schema)

    return running


def _write_call(directory: Path) -> Callable[[DataFrame, int], None]:
    def write_call(rows: DataFrame, epoch: int) -> None:
        content = json.dumps(sorted((tuple(row) for row in rows.select(RUNNING.names).collect()), key=repr))
        target = directory / f"{epoch}.json"
        # Called again with an epoch, it must be given the same rows.
        assert not target.exists() or target.read_text() == content, f"epoch {epoch} came with other rows"
        half = directory / f".{epoch}.half"
        half.write_text(content)
        half.rename(target)

    return write_call


def segments_stored(store: Store) -> set[str]:
    return {item.path for item in store.list("segments")}


def segments_needed(store: Store) -> set[str]:
    return set().union(*(read_manifest(store, epoch).paths for epoch in committed_epochs(store)))
