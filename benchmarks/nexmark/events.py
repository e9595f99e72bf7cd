"""A seeded generator of Nexmark's events: persons, auctions and bids of an online auction, in the ratio 1:3:46.

The proportions, hot keys, lifetimes and approximate sizes are those of Apache Beam's generator. Half of the bids
go to one hot auction of the last hundred, and three quarters of the sellers and bidders are hot persons. Some
auctions and bids refer to a person or auction that appears shortly afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from peacefs.dataflow.model.stream_type import TIME

PERSONS: Final = 1
AUCTIONS: Final = 3
ROUND: Final = 50
FIRST_CATEGORY: Final = 10
_CATEGORIES = 5
_FIRST_ID = 1000
_AUCTIONS_IN_FLIGHT = 100
_ACTIVE_PERSONS = 1000
_AHEAD = 10
_HOT_OF = 100
_BEGIN_US = 1_767_225_600_000_000  # 2026-01-01
_STATES = ("az", "ca", "id", "or", "wa", "wy")
_CITIES = ("phoenix", "los angeles", "san francisco", "boise", "portland", "bend", "redmond", "seattle", "kent")
_FIRST_NAMES = ("peter", "paul", "luke", "john", "saul", "vicky", "kate", "julie", "sarah", "deiter", "walter")
_LAST_NAMES = ("shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones", "noris")
_CHANNELS = ("apple", "google", "facebook", "baidu")
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
_TEXTS = 997

#: No auction is open for longer at `EVENTS_A_SECOND`.
EVENTS_A_SECOND: Final = 10_000
LONGEST_AUCTION: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class Events:
    """One table for each kind of event, each in the order of `at`. No two events have one time."""

    persons: pa.Table
    auctions: pa.Table
    bids: pa.Table

    def __getitem__(self, kind: str) -> pa.Table:
        table: pa.Table = getattr(self, kind)
        return table


def events(count: int, *, seed: int) -> Events:
    """Make the first `count` events, `EVENTS_A_SECOND` of them per second of event time."""
    make = _Generator(np.random.default_rng(seed))
    number = np.arange(count)
    turn, place = number // ROUND, number % ROUND
    at = _BEGIN_US + number * (1_000_000 // EVENTS_A_SECOND)
    a_person, a_bid = place < PERSONS, place >= PERSONS + AUCTIONS
    an_auction = ~a_person & ~a_bid
    return Events(
        make.persons(turn[a_person], at[a_person]),
        make.auctions(turn[an_auction], place[an_auction], at[an_auction]),
        make.bids(turn[a_bid], at[a_bid]),
    )


class _Generator:
    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def persons(self, turn: Any, at: Any) -> pa.Table:
        rows = len(turn)
        names = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
        return pa.table(
            {
                "id": _FIRST_ID + turn,
                "name": self._one_of(names, rows),
                "email": self._texts(rows, 10, 20),
                "card": self._texts(rows, 19, 20),
                "city": self._one_of(_CITIES, rows),
                "state": self._one_of(_STATES, rows),
                "at": pa.array(at).cast(TIME),
                "extra": self._texts(rows, 60, 120),
            }
        )

    def auctions(self, turn: Any, place: Any, at: Any) -> pa.Table:
        rows = len(turn)
        number = turn * AUCTIONS + place - PERSONS
        first_bid = self._prices(rows)
        # Their mean length is such that a hundred auctions are open.
        mean_us = _AUCTIONS_IN_FLIGHT * ROUND // AUCTIONS * (1_000_000 // EVENTS_A_SECOND)
        return pa.table(
            {
                "id": _FIRST_ID + number,
                "item": self._texts(rows, 10, 20),
                "description": self._texts(rows, 50, 100),
                "first_bid": first_bid,
                "reserve": first_bid + self._prices(rows),
                "at": pa.array(at).cast(TIME),
                "expires": pa.array(at + 1 + self._random.integers(0, 2 * mean_us, rows)).cast(TIME),
                "seller": self._persons(turn, 0),
                "category": FIRST_CATEGORY + self._random.integers(0, _CATEGORIES, rows),
                "extra": self._texts(rows, 150, 300),
            }
        )

    def bids(self, turn: Any, at: Any) -> pa.Table:
        rows = len(turn)
        last = turn * AUCTIONS + AUCTIONS - 1
        known = np.minimum(last, _AUCTIONS_IN_FLIGHT)
        cold = last - known + self._random.integers(0, known + 1 + _AHEAD)
        auction = np.where(self._random.random(rows) < 1 / 2, last // _HOT_OF * _HOT_OF, cold)
        return pa.table(
            {
                "auction": _FIRST_ID + auction,
                "bidder": self._persons(turn, 1),
                "price": self._prices(rows),
                "channel": self._one_of(_CHANNELS, rows),
                "url": self._texts(rows, 20, 40),
                "at": pa.array(at).cast(TIME),
                "extra": self._texts(rows, 10, 40),
            }
        )

    def _persons(self, last: Any, hot: int) -> Any:
        """Return ids of persons: the hot one three times of four, or one of the last thousand and the next ten."""
        known = np.minimum(last, _ACTIVE_PERSONS)
        cold = last - known + self._random.integers(0, known + 1 + _AHEAD)
        is_hot = self._random.random(len(last)) < 3 / 4
        return _FIRST_ID + np.where(is_hot, last // _HOT_OF * _HOT_OF + hot, cold)

    def _prices(self, rows: int) -> Any:
        return np.round(10 ** (self._random.random(rows) * 6) * 100).astype(np.int64)

    def _one_of(self, values: Any, rows: int) -> pa.Array:
        return pa.array(values).take(pa.array(self._random.integers(0, len(values), rows)))

    def _texts(self, rows: int, least: int, most: int) -> pa.Array:
        sizes = self._random.integers(least, most, _TEXTS)
        return self._one_of([bytes(self._random.choice(_LETTERS, size)).decode() for size in sizes], rows)
