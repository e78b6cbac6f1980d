"""NEXMark events: the same whenever they are made, in the proportions they must have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from midstream.errors import MidstreamError
from midstream.nexmark.events import FIRST_ID, SCHEMAS, Nexmark
from midstream.nexmark.source import NexmarkOptions, NexmarkSource

EVENTS = 100_000


@given(st.sampled_from(list(SCHEMAS)), st.integers(0, 500), st.lists(st.integers(0, 500), max_size=5))
def test_any_part_is_the_same(kind: str, first: int, lengths: list[int]) -> None:
    stream, parts, last = Nexmark(seed=3), [], first
    for length in lengths:
        parts.append(stream.table(kind, last, last + length))
        last += length
    whole = stream.table(kind, first, last)
    assert pa.concat_tables([whole.slice(0, 0), *parts]).equals(whole)


def test_other_seeds_are_other_events() -> None:
    bids = [Nexmark(seed).table("bid", 0, 1000) for seed in (1, 2)]
    assert not bids[0].equals(bids[1])


def test_the_standard_proportions() -> None:
    stream = Nexmark()
    rows = {kind: stream.table(kind, 0, EVENTS).num_rows for kind in SCHEMAS}
    assert rows == {"person": EVENTS // 50, "auction": EVENTS * 3 // 50, "bid": EVENTS * 46 // 50}


def test_ids_follow_each_other_and_are_known_before_they_are_used() -> None:
    stream = Nexmark()
    people, auctions, bids = (stream.table(kind, 0, EVENTS) for kind in SCHEMAS)
    assert people.column("id").to_pylist() == list(range(FIRST_ID, FIRST_ID + people.num_rows))
    assert auctions.column("id").to_pylist() == list(range(FIRST_ID, FIRST_ID + auctions.num_rows))
    opened = np.asarray(auctions.column("date_time").cast(pa.int64()))
    of_bid = np.asarray(bids.column("auction")) - FIRST_ID
    after = of_bid > 2  # the first bids of all are on auctions of their own cycle
    assert (opened[of_bid[after]] <= np.asarray(bids.column("date_time").cast(pa.int64()))[after]).all()
    assert pc.all(pc.less(auctions.column("date_time"), auctions.column("expires"))).as_py()


def test_half_of_the_bids_are_on_hot_auctions() -> None:
    bids = Nexmark().table("bid", 0, EVENTS)
    hot = np.asarray(bids.column("auction")) % 100 == 0
    assert 0.45 < hot.mean() < 0.56
    prices = np.asarray(bids.column("price"))
    assert prices.min() >= 100
    assert prices.max() <= 10**8


def test_event_time_runs_with_the_rate() -> None:
    times = np.asarray(Nexmark(rate=100).table("bid", 0, 5000).column("date_time").cast(pa.int64()))
    assert times[-1] - times[0] == pytest.approx(50 * 10**6, rel=0.02)
    assert (np.diff(times) >= 0).all()


def test_as_a_spark_source(spark: SparkSession) -> None:
    spark.dataSource.register(NexmarkSource)
    for kind, schema in SCHEMAS.items():
        read = spark.read.format("nexmark").options(table=kind, events=10_000, partitions=3).load().toArrow()
        made = Nexmark().table(kind, 0, 10_000)
        key = [(name, "ascending") for name in schema.names]
        assert read.cast(schema).sort_by(key).equals(made.sort_by(key))


@pytest.mark.parametrize("given", [{"table": "bids"}, {"events": "many"}, {"speed": "3"}])
def test_options_that_are_none(given: dict[str, str]) -> None:
    with pytest.raises(MidstreamError, match="BAD_NEXMARK_OPTION"):
        NexmarkOptions.of(given)
