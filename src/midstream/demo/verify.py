"""Whether the demo's output and state are what an independent batch computation finds, change by change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import functions as F

from midstream.changes.change import Insert, Remove, Replace
from midstream.coordinator.modification import Phase
from midstream.demo.auction import BIDS, LEAST, NEW_RATE, OLD_RATE
from midstream.demo.story import Told
from midstream.engine.run import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Stretch:
    """Epochs between two changes: bids that are missing in the ledger, and bids that are there twice."""

    rows: int
    lost: int
    duplicated: int


@dataclass(frozen=True)
class Comparison:
    what: str
    rows: int
    right: bool


def stretches(directory: Path, firsts: Sequence[int], last: int) -> list[Stretch]:
    """From each change to the next. Bids are numbered without a gap, and an epoch reads on where the one before
    ended; so whatever is missing or twice shows in the numbers themselves."""
    written = _written(directory / "ledger").to_table(columns=["bid", "epoch"])
    found, reached = [], -1
    for first, end in zip((0, *firsts), (*firsts, last + 1), strict=True):
        inside = pc.and_(pc.greater_equal(written["epoch"], first), pc.less(written["epoch"], end))
        bids = written.filter(inside)["bid"]
        distinct = len(pc.unique(bids))
        highest = pc.max(bids).as_py() if len(bids) else reached
        found.append(Stretch(len(bids), highest - reached - distinct, len(bids) - distinct))
        reached = highest
    return found


def comparisons(spark: SparkSession, run: Run, told: Sequence[Told], directory: Path, last: int) -> list[Comparison]:
    """The ledger, the totals that were written and those in the state, against a batch query, up to an epoch."""
    ledger = spark.read.parquet(str(directory / "ledger")).where(f"epoch <= {last}")
    count = ledger.count()
    bids = spark.sql(BIDS.format(numbers=f"(SELECT id AS value FROM range({count}))"))
    epochs = ledger.groupBy("epoch").agg(F.min("bid").alias("first"), F.max("bid").alias("last"))
    rate, valid = _rate(told), _valid(told)
    expected = (
        bids.join(F.broadcast(epochs), F.expr("bid BETWEEN first AND last"))
        .withColumn("euros", F.expr(f"dollars * {rate} DIV 1000"))
        .withColumn("counts", F.expr(f"euros >= {LEAST} OR NOT ({valid})"))
    )
    per_auction = expected.where("counts").groupBy("auction")
    totals = per_auction.agg(F.count("*").alias("bids"), F.sum("euros").alias("euros"), F.max("euros").alias("highest"))
    wanted = totals.toArrow()
    return [
        _same_bids(expected, ledger, count),
        compare("totals as written", newest_rows(directory / "totals", last), wanted),
        compare("totals in the state", run.read_result("totals", last), wanted),
    ]


def _same_bids(expected: DataFrame, ledger: DataFrame, count: int) -> Comparison:
    columns = ["bid", "auction", "bidder", "euros", "epoch"]
    differing = expected.select(columns).exceptAll(ledger.select(columns)).count()
    return Comparison("ledger of all bids", count, differing == 0 and expected.count() == count)


def compare(what: str, found: pa.Table, expected: pa.Table) -> Comparison:
    """Whether two tables hold the same rows; the order of rows and columns, and the size of strings, do not count."""
    ordered = (table.select(expected.column_names).sort_by("auction") for table in (found, expected))
    left, right = (table.cast(expected.schema).combine_chunks() for table in ordered)
    return Comparison(what, found.num_rows, left.equals(right))


def newest_rows(output: Path, last: int) -> pa.Table:
    """An epoch writes the auctions it changed: an auction's totals are its row of the newest epoch."""
    rows = _written(output).to_table(filter=pc.field("epoch") <= last)
    newest = rows.group_by("auction").aggregate([("epoch", "max")]).rename_columns(["auction", "epoch"])
    return rows.join(newest, keys=["auction", "epoch"], join_type="inner")


def _written(output: Path) -> ds.Dataset:
    return ds.dataset(output, partitioning=ds.partitioning(pa.schema([("epoch", pa.int64())]), flavor="hive"))


def _rate(told: Sequence[Told]) -> str:
    """The exchange rate of an epoch, as SQL."""
    replaced = [t.modification.epoch for t in _in_force(told) if isinstance(t.scene.change, Replace)]
    return f"CASE WHEN epoch >= {replaced[0]} THEN {NEW_RATE} ELSE {OLD_RATE} END" if replaced else str(OLD_RATE)


def _valid(told: Sequence[Told]) -> str:
    """Whether small bids were left out in an epoch, as SQL."""
    parts, since = [], None
    for one in _in_force(told):
        change = one.scene.change
        if isinstance(change, Insert) or change is None:  # what is undone is that they count again
            since = one.modification.epoch
        elif isinstance(change, Remove) and since is not None:
            parts.append(f"(epoch >= {since} AND epoch < {one.modification.epoch})")
            since = None
    if since is not None:
        parts.append(f"epoch >= {since}")
    return " OR ".join(parts) or "false"


def _in_force(told: Sequence[Told]) -> list[Told]:
    return [one for one in told if one.modification.phase in (Phase.APPLIED, Phase.UNDONE)]
