"""The events of NEXMark, made many at once: people join, open auctions, and bid on them.

Of every fifty events one is a person, three are auctions and 46 are bids, as in the reference generator; so are the
shares of hot sellers, bidders and auctions. Event number n is the same whenever and wherever it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.nexmark.chance import Chance, Numbers

PEOPLE, AUCTIONS, BIDS = 1, 3, 46
CYCLE = PEOPLE + AUCTIONS + BIDS

FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
IN_FLIGHT = 100
"""Auctions that are open at about one time."""
ACTIVE_PEOPLE = 1000
HOT = 100
"""One of so many ids is hot; it gets most of what happens."""
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Seattle", "Cheyenne")
_FIRST_NAMES = ("Ada", "Ben", "Clara", "Dan", "Eve", "Finn", "Grace", "Hugo", "Ida", "Jon", "Kim")
_LAST_NAMES = ("Abrams", "Baker", "Clark", "Dunn", "Ellis", "Frost", "Grant", "Hale", "Irving")
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu")

TIME = pa.timestamp("us", tz="UTC")
PERSON = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("email", pa.string()),
        ("credit_card", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("date_time", TIME),
    ]
)
AUCTION = pa.schema(
    [
        ("id", pa.int64()),
        ("item", pa.string()),
        ("initial_bid", pa.int64()),
        ("reserve", pa.int64()),
        ("date_time", TIME),
        ("expires", TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
    ]
)
BID = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("date_time", TIME),
    ]
)
SCHEMAS: Mapping[str, pa.Schema] = {"person": PERSON, "auction": AUCTION, "bid": BID}
_PLACES = {"person": range(PEOPLE), "auction": range(PEOPLE, PEOPLE + AUCTIONS), "bid": range(PEOPLE + AUCTIONS, CYCLE)}
"""Which of every fifty events are of a kind."""


@dataclass(frozen=True)
class Nexmark:
    """A stream of events: `rate` of them in every second of event time, from `start` (microseconds since 1970)."""

    seed: int = 1
    rate: int = 10_000
    start: int = 1_767_225_600_000_000

    def table(self, kind: str, first: int, last: int) -> pa.Table:
        """The people, auctions or bids among the events from number `first` up to `last`."""
        numbers = numbers_of(kind, first, last)
        make: Callable[[Numbers, Chance], dict[str, object]] = getattr(self, f"_{kind}")
        columns = make(numbers, Chance(self.seed, numbers))
        schema = SCHEMAS[kind]
        return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)

    def time(self, numbers: Numbers) -> Numbers:
        return self.start + numbers * 1_000_000 // self.rate

    def _person(self, numbers: Numbers, chance: Chance) -> dict[str, object]:
        first = _chosen(_FIRST_NAMES, chance.below("first", len(_FIRST_NAMES)))
        last = _chosen(_LAST_NAMES, chance.below("last", len(_LAST_NAMES)))
        card = [_digits(chance.below(f"card{part}", 10_000), 4) for part in range(4)]
        return {
            "id": last_person(numbers) + FIRST_ID,
            "name": pc.binary_join_element_wise(first, last, " "),
            "email": pc.utf8_lower(pc.binary_join_element_wise(first, _text("", numbers), "@example.com", "")),
            "credit_card": pc.binary_join_element_wise(*card, " "),
            "city": _chosen(_CITIES, chance.below("city", len(_CITIES))),
            "state": _chosen(_STATES, chance.below("state", len(_STATES))),
            "date_time": self.time(numbers),
        }

    def _auction(self, numbers: Numbers, chance: Chance) -> dict[str, object]:
        at, initial = self.time(numbers), _price(chance, "initial")
        hot = ~chance.one_in("cold seller", 4)
        seller = np.where(hot, last_person(numbers) // HOT * HOT, _any_person(numbers, chance))
        # About as long as it takes until as many auctions have been opened as are in flight.
        horizon = IN_FLIGHT * CYCLE // AUCTIONS * 1_000_000 // self.rate
        length = 1 + chance.below("length", max(2 * horizon, 1))
        return {
            "id": last_auction(numbers) + FIRST_ID,
            "item": _text("item-", chance.below("item", 100_000)),
            "initial_bid": initial,
            "reserve": initial + _price(chance, "reserve"),
            "date_time": at,
            "expires": at + length,
            "seller": seller + FIRST_ID,
            "category": FIRST_CATEGORY + chance.below("category", CATEGORIES),
        }

    def _bid(self, numbers: Numbers, chance: Chance) -> dict[str, object]:
        newest = last_auction(numbers)
        oldest = np.maximum(newest - IN_FLIGHT, 0)
        open_one = oldest + chance.below("auction", newest - oldest + 1)
        auction = np.where(chance.one_in("cold auction", 2), open_one, newest // HOT * HOT)
        hot = ~chance.one_in("cold bidder", 4)
        bidder = np.where(hot, last_person(numbers) // HOT * HOT + 1, _any_person(numbers, chance))
        known = _chosen(_CHANNELS, chance.below("channel", len(_CHANNELS)))
        number = chance.below("other channel", 10_000)
        channel = pc.if_else(pa.array(chance.one_in("hot channel", 2)), known, _text("channel-", number))
        url = _text("https://www.nexmark.com/item.htm?query=1&channel_id=", number)
        return {
            "auction": auction + FIRST_ID,
            "bidder": bidder + FIRST_ID,
            "price": _price(chance, "price"),
            "channel": channel,
            "url": url,
            "date_time": self.time(numbers),
        }


def numbers_of(kind: str, first: int, last: int) -> Numbers:
    """The numbers of the events of a kind among those from `first` up to `last`."""
    places = np.asarray(_PLACES[kind], np.int64)
    cycles = np.arange(first // CYCLE, -(-last // CYCLE), dtype=np.int64) * CYCLE
    numbers = (cycles[:, None] + places[None, :]).ravel()
    return numbers[(numbers >= first) & (numbers < last)]


def last_person(numbers: Numbers) -> Numbers:
    """The person that has joined last, by the time of an event."""
    return np.asarray(numbers // CYCLE, np.int64)


def last_auction(numbers: Numbers) -> Numbers:
    """The auction that was opened last, by the time of an event; the first one in the first cycle before it is."""
    in_cycle = np.clip(numbers % CYCLE - PEOPLE, -1, AUCTIONS - 1)
    return np.asarray(np.maximum(numbers // CYCLE * AUCTIONS + in_cycle, 0), np.int64)


def _any_person(numbers: Numbers, chance: Chance) -> Numbers:
    newest = last_person(numbers)
    oldest = np.maximum(newest - ACTIVE_PEOPLE, 0)
    return np.asarray(oldest + chance.below("person", newest - oldest + 1), np.int64)


def _price(chance: Chance, name: str) -> Numbers:
    """From 100 to 100 million, small ones as often as large ones."""
    return np.asarray(np.round(np.power(10.0, chance.fraction(name) * 6) * 100), np.int64)


def _chosen(names: tuple[str, ...], which: Numbers) -> pa.Array:
    return pa.array(names).take(pa.array(which))


def _text(prefix: str, numbers: Numbers) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _digits(numbers: Numbers, count: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), count, "0")
