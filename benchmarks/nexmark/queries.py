"""Queries of Nexmark as a user of peacefs writes them. Their parameters name the streams that they read.

The questions are those of Apache Beam's Nexmark suite, with windows as in the SQL of the nexmark/nexmark project.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream

from .events import FIRST_CATEGORY, LONGEST_AUCTION, Events

_MICROSECOND = timedelta(microseconds=1)
_FOR_EVER = "36500 days"


def q0(bids: Stream) -> Stream:
    """Pass all bids through. Measures what moving rows costs."""
    return bids


def q1(bids: Stream) -> Stream:
    """Convert each bid's price from dollars to euros, at 0.908."""
    return bids.select("auction", "bidder", "at", "extra", price=F.col("price") * F.lit(0.908))


def q2(bids: Stream) -> Stream:
    """Select the bids for some auctions: those whose number is a multiple of 123."""
    number = F.col("auction")
    # Arrow has no remainder; a quotient of integers is cut off.
    return bids.filter(number - number / 123 * 123 == 0).select("auction", "price", "at")


def q3(persons: Stream, auctions: Stream) -> Stream:
    """Say who sells in category 10 in Oregon, Idaho or California: a join without a bound in time."""
    sellers = persons.filter(F.col("state").isin(["or", "id", "ca"])).select("id", "at", "name", "city", "state")
    offers = auctions.filter(F.col("category") == FIRST_CATEGORY)
    offers = offers.select("at", id=F.col("seller"), auction=F.col("id"))
    return sellers.key_by("id").join(offers.key_by("id"), within=_FOR_EVER)


def q4(auctions: Stream, bids: Stream) -> Stream:
    """Average the highest bids of closed auctions by category, over all so far, at each ten seconds.

    A bid counts from its auction's opening to its expiry. No auction is open for longer than a second, so an
    auction without a bid for so long is closed.
    """
    opened = auctions.select("id", "at", "category", "expires")
    offered = bids.select("at", "price", id=F.col("auction"), offered=F.col("at"))
    valid = opened.key_by("id").join(offered.key_by("id"), between=("0s", LONGEST_AUCTION))
    valid = valid.filter(F.col("offered") <= F.col("expires"))
    finals = valid.key_by("id", "category").session_window(LONGEST_AUCTION).aggregate(final=F.max("price"))
    return finals.key_by("category").global_window(every="10s").aggregate(average=F.mean("final"))


def q5(bids: Stream) -> Stream:
    """Say which auctions had the most bids in the last ten seconds, every two seconds."""
    counted = bids.key_by("auction").window("10s", every="2s").aggregate(bids=F.count())
    counted = counted.select("auction", "bids", "window_end", start=F.col("window_start"))
    most = counted.key_by("start").window("2s").aggregate(most=F.max("bids")).select("window_end", "start", "most")
    both = counted.key_by("start").join(most.key_by("start"), within="2s")
    return both.filter(F.col("bids") == F.col("most")).select("window_end", "start", "auction", "bids")


def q7(bids: Stream) -> Stream:
    """Give the highest bids of each ten seconds, with all of their columns: bids joined with the maximum."""
    highest = bids.window("10s").aggregate(price=F.max("price")).select("window_end", "price")
    offered = bids.select("auction", "bidder", "price", "at", "extra", offered=F.col("at"))
    return offered.key_by("price").join(highest.key_by("price"), between=(_MICROSECOND, "10s"))


def q8(persons: Stream, auctions: Stream) -> Stream:
    """Say who registered and opened auctions within the same ten seconds."""
    new = persons.key_by("id", "name").window("10s").aggregate(registered=F.count())
    sellers = auctions.select("at", id=F.col("seller")).key_by("id").window("10s").aggregate(opened=F.count())
    new = new.select("window_end", "id", "name", "window_start")
    sellers = sellers.select("window_end", "id", "window_start")
    return new.key_by("id", "window_start").join(sellers.key_by("id", "window_start"), within="0s")


def q11(bids: Stream) -> Stream:
    """Count the bids of each user in sessions that end with ten seconds of silence."""
    return bids.key_by("bidder").session_window("10s").aggregate(bids=F.count())


QUERIES: Final[Mapping[str, Callable[..., Stream]]] = {
    each.__name__: each for each in (q0, q1, q2, q3, q4, q5, q7, q8, q11)
}


def read_by(query: str) -> list[str]:
    """Return the names of the streams that a query reads."""
    return list(inspect.signature(QUERIES[query]).parameters)


def network_of(query: str, given: Events) -> Network:
    plan = Query(query)
    streams: Any = {name: plan.source(name, given[name].schema, time="at") for name in read_by(query)}
    QUERIES[query](**streams).sink("out")
    return plan.network()
