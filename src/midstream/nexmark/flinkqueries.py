"""The same queries in Flink SQL, as far as they give rows once: what comes from PyPI has no sink for rows that replace
each other (q4, q6, q9, q15 to q19), windows by the clock (q12) do not close at the end of the input, and event time is
in milliseconds, which is too coarse for sessions (q11)."""

from __future__ import annotations

from collections.abc import Mapping

TABLES: Mapping[str, str] = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(6)",
    "auction": "id BIGINT, item STRING, seller BIGINT, category BIGINT, date_time TIMESTAMP(6), expires TIMESTAMP(6)",
    "person": "id BIGINT, name STRING, city STRING, state STRING, date_time TIMESTAMP(6)",
}
"""The columns queries read."""


def _tumbling(table: str) -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"


_COUNTS = """SELECT auction, COUNT(*) AS n, window_start, window_end FROM
    TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""

FLINK: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q5": f"""SELECT c.auction, c.n, c.window_start FROM ({_COUNTS}) c
        JOIN (SELECT MAX(n) AS most, window_start, window_end FROM ({_COUNTS}) GROUP BY window_start, window_end) m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.n = m.most""",
    "q7": f"""SELECT b.auction, b.bidder, b.price, b.date_time FROM (SELECT * FROM {_tumbling("bid")}) b
        JOIN (SELECT MAX(price) AS most, window_start, window_end FROM {_tumbling("bid")}
            GROUP BY window_start, window_end) m
        ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.most""",
    "q8": f"""SELECT id, name, window_start FROM (SELECT * FROM {_tumbling("person")}) p WHERE EXISTS
        (SELECT * FROM (SELECT * FROM {_tumbling("auction")}) a
            WHERE a.seller = p.id AND a.window_start = p.window_start AND a.window_end = p.window_end)""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.date_time, a.item, a.seller FROM bid b
        JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
}
