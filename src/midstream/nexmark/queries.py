"""The queries of NEXMark on midstream, each beside the SQL that says what it must give.

The SQL is for DuckDB, over all events at once: tables `bid`, `auction` and `person`, and `watermark`, how far event
time has come in each of them. A query that gives rows once is compared row by row; of one that keeps a result up to
date, the last row of each of its `keys` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from midstream.eventtime.windows import session, sliding, tumbling
from midstream.graph.begin import source
from midstream.graph.stream import KeyedStream, Stream
from midstream.nexmark.events import AUCTIONS, CYCLE, IN_FLIGHT
from midstream.nexmark.streams import Loader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Events:
    """The three streams, and how long an auction is open at most."""

    bid: Stream
    auction: Stream
    person: Stream
    longest_auction: str


@dataclass(frozen=True)
class Query:
    """One query: what it is on midstream, and what it must give."""

    name: str
    about: str
    build: Callable[[Events], Stream]
    sql: str
    keys: tuple[str, ...] = ()
    compared: str = "SELECT * FROM given"
    """What is compared of the rows it has given, if it depends on the clock how they are put together."""
    more: tuple[str, ...] = ()
    """What it reads of events besides the usual columns."""


QUERIES: dict[str, Query] = {}

_DAY = "strftime(date_time AT TIME ZONE 'UTC', '%Y-%m-%d')"
_SPARK_UTC = "convert_timezone(current_timezone(), 'UTC', date_time::timestamp_ntz)"
SPARK_DAY = f"date_format({_SPARK_UTC}, 'yyyy-MM-dd')"


_USUAL = {
    "bid": ("auction", "bidder", "price", "date_time"),
    "auction": ("id", "seller", "category", "date_time", "expires"),
    "person": ("id", "name", "city", "state", "date_time"),
}


def events(load: Loader, rate: int, more: tuple[str, ...] = ()) -> Events:
    """The streams of a loader, of so many events a second, with the columns queries read. (Catalyst finds out for a
    native query which it reads. A source of midstream is read whole: a change may want what no step wants yet.)"""

    def narrow(table: str, spark: SparkSession) -> DataFrame:
        frame = load(table, spark)
        return frame.select(*(name for name in frame.columns if name in (*_USUAL[table], *more)))

    # As in `Nexmark._auction`: twice the time until as many auctions have been opened as are in flight.
    horizon = IN_FLIGHT * CYCLE // AUCTIONS * 1_000_000 // rate
    bid, auction, person = (
        source(table, partial(narrow, table), event_time="date_time") for table in ("bid", "auction", "person")
    )
    return Events(bid, auction, person, f"{2 * horizon + 1} microseconds")


def _query(
    name: str,
    about: str,
    sql: str,
    keys: tuple[str, ...] = (),
    compared: str = Query.compared,
    more: tuple[str, ...] = (),
) -> Callable[[Callable[[Events], Stream]], Callable[[Events], Stream]]:
    def register(build: Callable[[Events], Stream]) -> Callable[[Events], Stream]:
        QUERIES[name] = Query(name, about, build, sql, keys, compared, more)
        return build

    return register


@_query("q0", "pass through", "SELECT auction, bidder, price, date_time FROM bid")
def _q0(events: Events) -> Stream:
    return events.bid.sql("q0", "SELECT auction, bidder, price, date_time FROM input")


_Q1 = "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, date_time FROM {}"


@_query("q1", "another currency", _Q1.format("bid"))
def _q1(events: Events) -> Stream:
    return events.bid.sql("q1", _Q1.format("input"))


_Q2 = "SELECT auction, price FROM {} WHERE auction % 123 = 0"


@_query("q2", "some auctions", _Q2.format("bid"))
def _q2(events: Events) -> Stream:
    return events.bid.sql("q2", _Q2.format("input"))


@_query(
    "q3",
    "who sells in some states",
    """SELECT p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id
    WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
)
def _q3(events: Events) -> Stream:
    auctions = events.auction.sql("of-ten", "SELECT seller, id AS auction FROM input WHERE category = 10")
    people = events.person.sql(
        "of-west", "SELECT id AS seller, name, city, state FROM input WHERE state IN ('OR', 'ID', 'CA')"
    )
    joined = auctions.join("sellers", people, "seller", keep_all=True)
    return joined.sql("q3", "SELECT name, city, state, auction FROM input")


def _bids_in_time(events: Events) -> Stream:
    """Bids with their auctions, as far as these were open."""
    bids = events.bid.sql("bids", "SELECT auction, bidder, price, date_time AS bid_at FROM input")
    auctions = events.auction.sql(
        "auctions", "SELECT id AS auction, seller, category, date_time AS opened, expires FROM input"
    )
    within, times = (events.longest_auction, "0 seconds"), ("bid_at", "opened")
    joined = bids.join("bids-of-auctions", auctions, "auction", within=within, times=times)
    return joined.sql("in-time", "SELECT * FROM input WHERE bid_at BETWEEN opened AND expires")


_IN_TIME = """SELECT b.*, b.date_time AS bid_at, a.seller, a.category, a.date_time AS opened, a.expires
    FROM bid b JOIN auction a ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires"""


@_query(
    "q4",
    "average price of a category",
    f"""SELECT category, CAST(avg(final) AS DOUBLE) AS average FROM
    (SELECT auction, category, max(price) AS final FROM ({_IN_TIME}) GROUP BY auction, category) GROUP BY category""",
    keys=("category",),
)
def _q4(events: Events) -> Stream:
    finals = (
        _bids_in_time(events)
        .key_by("auction", "category")
        .stateful("finals", _raised, state="best bigint", output="category bigint, more bigint, fresh bigint")
    )
    sums = finals.key_by("category").aggregate("sums", total=F.sum("more"), n=F.sum("fresh"))
    return sums.sql("q4", "SELECT category, CAST(total AS DOUBLE) / n AS average FROM input")


def _raised(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """By how much the best price of each auction has risen, and whether it had none before."""
    best = rows.group_by(["auction", "category"]).aggregate([("price", "max")])
    both = best.join(state, ["auction", "category"], join_type="left outer")
    before = pc.fill_null(both.column("best"), 0)
    now = pc.max_element_wise(before, both.column("price_max"))
    fresh = pc.cast(pc.is_null(both.column("best")), pa.int64())
    output = pa.table({"category": both.column("category"), "more": pc.subtract(now, before), "fresh": fresh})
    kept = pa.table({"auction": both.column("auction"), "category": both.column("category"), "best": now})
    return output, kept


@_query(
    "q5",
    "hot auctions",
    """WITH counts AS (
        SELECT auction, s AS window_start, count(*) AS n FROM bid, LATERAL (
            SELECT unnest([time_bucket(INTERVAL 2 SECOND, date_time) - i * INTERVAL 2 SECOND FOR i IN range(5)]) AS s)
        GROUP BY auction, s)
    SELECT auction, n, window_start FROM counts
    WHERE window_start + INTERVAL 10 SECOND <= (SELECT bid FROM watermark)
    QUALIFY rank() OVER (PARTITION BY window_start ORDER BY n DESC) = 1""",
)
def _q5(events: Events) -> Stream:
    windows = events.bid.key_by("auction").window(sliding("10 seconds", "2 seconds"))
    counts = windows.aggregate("counts", n=F.count("*"))
    # All rows of a window come in the epoch in which it is over.
    return counts.sql(
        "q5",
        """SELECT auction, n, window_start FROM
        (SELECT *, rank() OVER (PARTITION BY window_start ORDER BY n DESC) AS place FROM input) WHERE place = 1""",
    )


_BEST_BIDS = f"""SELECT * FROM ({_IN_TIME})
    QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid_at, bidder) = 1"""


_CLOSED = f"""SELECT auction, any_value(seller) AS seller, any_value(expires) AS expires, max(price) AS price
    FROM ({_IN_TIME}) GROUP BY auction
    HAVING any_value(expires) < (SELECT least(bid, auction) FROM watermark)"""


@_query(
    "q6",
    "average price of a seller's last ten auctions",
    f"""SELECT seller, avg(price) AS average FROM (SELECT * FROM ({_CLOSED})
        QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) <= 10)
    GROUP BY seller""",
    keys=("seller",),
)
def _q6(events: Events) -> Stream:
    bids = _bids_in_time(events).sql("sold", "SELECT auction, price, seller, expires FROM input")
    closed = bids.key_by("auction").stateful(
        "closed",
        _closed,
        state="price bigint, seller bigint, expires timestamp, due timestamp",
        output="auction bigint, price bigint, seller bigint, expires timestamp",
        timer="due",
    )
    last = closed.key_by("seller").top("last-ten", 10, ["expires desc", "auction desc"])
    # All of the last ten of a seller come in the epoch in which they change.
    return last.sql("q6", "SELECT seller, avg(price) AS average FROM input GROUP BY seller")


def _closed(rows: pa.Table, state: pa.Table, now: datetime | None) -> tuple[pa.Table, pa.Table]:
    """The best price of each auction, given when no bid can come any more."""
    names = ["auction", "price", "seller", "expires"]
    best = pa.concat_tables([rows.select(names), state.select(names)]).group_by("auction")
    both = best.aggregate([("price", "max"), ("seller", "max"), ("expires", "max")]).rename_columns(names)
    due = pc.add(both.column("expires"), pa.scalar(timedelta(microseconds=1), pa.duration("us")))
    over = pc.less_equal(due, pa.scalar(now, due.type)) if now is not None else pa.array([False] * both.num_rows)
    return both.filter(over), both.append_column("due", due).filter(pc.invert(over))


@_query(
    "q7",
    "highest bid of a window",
    """SELECT auction, bidder, price, date_time FROM
    (SELECT *, time_bucket(INTERVAL 10 SECOND, date_time) AS s FROM bid)
    WHERE s + INTERVAL 10 SECOND <= (SELECT bid FROM watermark)
    QUALIFY rank() OVER (PARTITION BY s ORDER BY price DESC) = 1""",
)
def _q7(events: Events) -> Stream:
    # Of each epoch only the highest bids of a window can be the highest of all of it.
    bids = events.bid.sql(
        "bids",
        """SELECT /*+ BROADCAST(best) */ auction, bidder, price, date_time FROM
        (SELECT *, window(date_time, '10 seconds') AS w FROM input) AS bids JOIN
        (SELECT window(date_time, '10 seconds') AS w, max(price) AS price FROM input GROUP BY 1) AS best
        USING (w, price)""",
    )
    output = "auction bigint, bidder bigint, price bigint, date_time timestamp"
    return bids.window(tumbling("10 seconds")).apply("q7", _highest, output=output)


def _highest(rows: pa.Table) -> pa.Table:
    """The highest bids of each window."""
    best = rows.group_by("window_start").aggregate([("price", "max")])
    joined = rows.join(best, "window_start")
    highest = joined.filter(pc.equal(joined.column("price"), joined.column("price_max")))
    return highest.select(["auction", "bidder", "price", "date_time"])


@_query(
    "q8",
    "who joins and sells at once",
    """SELECT p.id, p.name, p.s AS window_start FROM
    (SELECT *, time_bucket(INTERVAL 10 SECOND, date_time) AS s FROM person) p SEMI JOIN
    (SELECT *, time_bucket(INTERVAL 10 SECOND, date_time) AS s FROM auction) a ON p.id = a.seller AND p.s = a.s
    WHERE p.s + INTERVAL 10 SECOND <= (SELECT least(auction, person) FROM watermark)""",
)
def _q8(events: Events) -> Stream:
    people = events.person.sql("people", "SELECT id, name, date_time FROM input")
    sellers = events.auction.sql("sellers", "SELECT seller AS id, date_time AS sold_at FROM input")
    joined = people.join(
        "q8-join", sellers, "id", how="semi", window=tumbling("10 seconds"), times=("date_time", "sold_at")
    )
    return joined.sql("q8", "SELECT id, name, window_start FROM input")


@_query(
    "q9",
    "winning bids",
    f"SELECT auction, bidder, price, bid_at, seller, category FROM ({_BEST_BIDS})",
    keys=("auction",),
)
def _q9(events: Events) -> Stream:
    best = _bids_in_time(events).key_by("auction").top("winners", 1, ["price desc", "bid_at asc", "bidder asc"])
    return best.sql("q9", "SELECT auction, bidder, price, bid_at, seller, category FROM input")


_Q10 = "SELECT auction, bidder, price, date_time, {day} AS day, {minute} AS minute FROM {table}"


@_query(
    "q10",
    "a log by day and minute",
    _Q10.format(day=_DAY, minute="strftime(date_time AT TIME ZONE 'UTC', '%H:%M')", table="bid"),
)
def _q10(events: Events) -> Stream:
    return events.bid.sql(
        "q10", _Q10.format(day=SPARK_DAY, minute=f"date_format({_SPARK_UTC}, 'HH:mm')", table="input")
    )


@_query(
    "q11",
    "bids of a visit",
    """SELECT bidder, count(*) AS n, min(date_time) AS window_start FROM
    (SELECT *, sum(fresh) OVER (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS visit FROM
        (SELECT *, CASE WHEN date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time)
            <= INTERVAL 10 SECOND THEN 0 ELSE 1 END AS fresh FROM bid))
    GROUP BY bidder, visit HAVING max(date_time) + INTERVAL 10 SECOND <= (SELECT bid FROM watermark)""",
)
def _q11(events: Events) -> Stream:
    visits = events.bid.key_by("bidder").window(session("10 seconds")).aggregate("visits", n=F.count("*"))
    return visits.sql("q11", "SELECT bidder, n, window_start FROM input")


@_query(
    "q12",
    "bids in ten seconds of the clock",
    "SELECT bidder, count(*) AS n FROM bid GROUP BY bidder",
    keys=("bidder", "window_start"),
    compared="SELECT bidder, sum(n) AS n FROM given GROUP BY bidder",
)
def _q12(events: Events) -> Stream:
    by_clock = events.bid.key_by("bidder").window(tumbling("10 seconds"), clock="processing")
    counted = by_clock.aggregate("counts", emit="changed", n=F.count("*"))
    return counted.sql("q12", "SELECT bidder, n, window_start FROM input")


_SIDE = "SELECT range AS key, 'v' || range AS value FROM range(10000)"


@_query(
    "q13",
    "with a table that stays",
    f"""SELECT auction, bidder, price, date_time, value FROM bid JOIN ({_SIDE}) ON auction % 10000 = key""",
)
def _q13(events: Events) -> Stream:
    def with_side(bids: DataFrame) -> DataFrame:
        side = bids.sparkSession.range(10_000).selectExpr("id AS key", "concat('v', id) AS value")
        joined = bids.join(F.broadcast(side), F.expr("auction % 10000 = key"))
        return joined.select("auction", "bidder", "price", "date_time", "value")

    return events.bid.transform("q13", with_side)


_Q14 = """SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
    CASE WHEN {hour} BETWEEN 8 AND 18 THEN 'dayTime' WHEN {hour} <= 6 OR {hour} >= 20 THEN 'nightTime'
    ELSE 'otherTime' END AS part, date_time FROM {table} WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"""


@_query("q14", "calculations", _Q14.format(hour="hour(date_time AT TIME ZONE 'UTC')", table="bid"))
def _q14(events: Events) -> Stream:
    return events.bid.sql("q14", _Q14.format(hour=f"hour({_SPARK_UTC})", table="input"))


_LOW, _MIDDLE, _HIGH = "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000"


def _statistics() -> dict[str, str]:
    """Counts of bids and of distinct values, all and by price."""
    counted = {"bids": "count(*)", **{f"bids{n}": f"count(*) FILTER (WHERE {c})" for n, c in _ranks()}}
    for column in ("bidder", "auction"):
        counted[f"{column}s"] = f"count(DISTINCT {column})"
        counted |= {f"{column}s{n}": f"count(DISTINCT {column}) FILTER (WHERE {c})" for n, c in _ranks()}
    return counted


def _aggregate(keyed: KeyedStream, id: str, columns: Mapping[str, str]) -> Stream:
    aggregates: dict[str, Any] = dict(columns)
    return keyed.aggregate(id, **aggregates)


def _ranks() -> list[tuple[int, str]]:
    return list(enumerate((_LOW, _MIDDLE, _HIGH), 1))


def _statistics_sql(keys: str) -> str:
    return f"SELECT {keys}, {_named(_statistics())} FROM bid GROUP BY ALL"


def _named(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{sql} AS {name}" for name, sql in columns.items())


@_query("q15", "bids of a day", _statistics_sql(f"{_DAY} AS day"), keys=("day",))
def _q15(events: Events) -> Stream:
    days = events.bid.sql("days", f"SELECT *, {SPARK_DAY} AS day FROM input")
    return _aggregate(days.key_by("day"), "q15", _statistics())


@_query(
    "q16", "bids of a channel", _statistics_sql(f"channel, {_DAY} AS day"), keys=("channel", "day"), more=("channel",)
)
def _q16(events: Events) -> Stream:
    days = events.bid.sql("days", f"SELECT *, {SPARK_DAY} AS day FROM input")
    return _aggregate(days.key_by("channel", "day"), "q16", _statistics())


PER_AUCTION = {
    "bids": "count(*)",
    **{f"bids{n}": f"count(*) FILTER (WHERE {c})" for n, c in _ranks()},
    "lowest": "min(price)",
    "highest": "max(price)",
    "average": "avg(price)",
    "total": "sum(price)",
}


@_query(
    "q17",
    "bids of an auction",
    f"SELECT auction, {_DAY} AS day, {_named(PER_AUCTION)} FROM bid GROUP BY ALL",
    keys=("auction", "day"),
)
def _q17(events: Events) -> Stream:
    days = events.bid.sql("days", f"SELECT auction, price, {SPARK_DAY} AS day FROM input")
    return _aggregate(days.key_by("auction", "day"), "q17", PER_AUCTION)


@_query(
    "q18",
    "the last bid of each bidder",
    """SELECT bidder, auction, price, date_time FROM bid
    QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC) = 1""",
    keys=("bidder", "auction"),
)
def _q18(events: Events) -> Stream:
    bids = events.bid.sql("bids", "SELECT bidder, auction, price, date_time FROM input")
    return bids.key_by("bidder", "auction").latest("q18", ["date_time", "price"])


@_query(
    "q19",
    "the ten best bids",
    """SELECT auction, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS rank, price,
    bidder, date_time FROM bid QUALIFY rank <= 10""",
    keys=("auction", "rank"),
)
def _q19(events: Events) -> Stream:
    bids = events.bid.sql("bids", "SELECT auction, price, bidder, date_time FROM input")
    return bids.key_by("auction").top("q19", 10, ["price desc", "date_time asc", "bidder asc"])


@_query(
    "q20",
    "bids with their auctions",
    """SELECT b.auction, b.bidder, b.price, b.date_time, a.item, a.seller FROM bid b JOIN auction a ON b.auction = a.id
    WHERE a.category = 10""",
    more=("item",),
)
def _q20(events: Events) -> Stream:
    bids = events.bid.sql("bids", "SELECT auction, bidder, price, date_time FROM input")
    auctions = events.auction.sql("of-ten", "SELECT id AS auction, item, seller FROM input WHERE category = 10")
    joined = bids.join("q20-join", auctions, "auction", keep_all=True)
    return joined.sql("q20", "SELECT auction, bidder, price, date_time, item, seller FROM input")


_Q21 = """SELECT auction, bidder, price, channel,
    CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
    ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
    FROM {} WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
    OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''"""


@_query("q21", "channels", _Q21.format("bid"), more=("channel", "url"))
def _q21(events: Events) -> Stream:
    return events.bid.sql("q21", _Q21.format("input"))


_Q22 = "SELECT auction, bidder, price, channel, {} FROM {}"


@_query(
    "q22",
    "parts of addresses",
    _Q22.format(", ".join(f"split_part(url, '/', {n}) AS dir{n - 3}" for n in (4, 5, 6)), "bid"),
    more=("channel", "url"),
)
def _q22(events: Events) -> Stream:
    parts = ", ".join(f"split_part(url, '/', {n}) AS dir{n - 3}" for n in (4, 5, 6))
    return events.bid.sql("q22", _Q22.format(parts, "input"))
