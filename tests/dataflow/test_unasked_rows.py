"""A producer that has taken over sends without a subscription (HA 5.3), and consumers continue where they are."""

from __future__ import annotations

import pyarrow as pa

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.messages import Data, Subscribed, Subscription, unasked
from peacefs.dataflow.model.batches import Batch, Position

_CREDIT_BYTES = 1000
_PRIMARY, _STANDBY = 1, 2


def rows(first: int, last: int) -> Batch:
    return Batch(first, pa.record_batch({"n": list(range(first, last + 1))}))


def reading(upto: int = 4) -> HAInput:
    """Return a consumer that has received rows up to a number from the primary on node-1."""
    source = HAInput("in", "consumer", 7, credit_bytes=_CREDIT_BYTES)
    asked = source.subscribe(0.0, _PRIMARY, 1.0)
    assert asked is not None
    source.subscribed(Subscribed("in", asked.subscription, Position(0, 0), 0), "node-1")
    assert source.accept(Data("in", asked.subscription, rows(1, upto)))
    return source


def resumed(source: HAInput, after: int, lineage: int = 0) -> Subscription:
    """Let the standby on node-2 take over; return its subscription."""
    subscription = unasked("consumer", 7, _STANDBY)
    source.subscribed(Subscribed("in", subscription, Position(lineage, after), 0), "node-2")
    return subscription


def taken(source: HAInput) -> list[int]:
    found = []
    while source.next() is not None:
        found += source.take().rows.column("n").to_pylist()
    return found


def test_unasked_rows_that_a_consumer_has_are_left_out_and_take_no_credit() -> None:
    source = reading()
    assert taken(source) == [1, 2, 3, 4]
    subscription = resumed(source, after=2)
    sent = 0

    def data(batch: Batch) -> Data:
        nonlocal sent
        sent += batch.bytes
        return Data("in", subscription, batch, sent)

    for _ in range(2):
        # Send as many repeated rows as its credit allows: they must use none of it.
        source.accept(data(rows(3, 4)))
    assert source.accept(data(rows(3, 6)))
    assert taken(source) == [5, 6] and source.lost == 0
    again = source.credit()
    assert again is None or again.subscription == subscription
    source.accept(data(rows(5, 40)))
    taken(source)
    credit = source.credit()
    assert credit is not None and credit.limit_bytes > _CREDIT_BYTES + 30 * 8


def test_unasked_rows_may_come_before_the_placement_that_says_why() -> None:
    source = reading()
    subscription = resumed(source, after=0)
    assert source.sender == "node-2"
    # The placement still names the primary at first, and then the standby.
    assert source.subscribe(0.1, _PRIMARY, 1.0) is None
    assert source.subscribe(0.2, _STANDBY, 1.0, sends_unasked=True) is None
    assert source.accept(Data("in", subscription, rows(1, 5)))
    assert taken(source) == [1, 2, 3, 4, 5]


def test_unasked_rows_are_waited_for_and_then_asked_for() -> None:
    source = reading()
    source.disconnected()
    assert source.subscribe(1.0, _STANDBY, 1.0, sends_unasked=True) is None
    assert source.subscribe(1.5, _STANDBY, 1.0, sends_unasked=True) is None
    asked = source.subscribe(2.0, _STANDBY, 1.0, sends_unasked=True)
    assert asked is not None and asked.after == Position(0, 4)
    # Only the answer to this subscription counts, not late messages of the unasked one.
    late = resumed(source, after=0)
    assert not source.accept(Data("in", late, rows(1, 6)))
    source.subscribed(Subscribed("in", asked.subscription, Position(0, 4), 0), "node-2")
    assert source.accept(Data("in", asked.subscription, rows(5, 6)))
    assert taken(source) == [1, 2, 3, 4, 5, 6]


def test_unasked_rows_in_another_numbering_come_again() -> None:
    source = reading()
    assert taken(source) == [1, 2, 3, 4]
    subscription = resumed(source, after=2, lineage=9)
    assert source.accept(Data("in", subscription, rows(3, 5)))
    assert taken(source) == [3, 4, 5] and source.processed == Position(9, 5)


def test_unasked_rows_after_a_gap_are_noticed() -> None:
    source = reading()
    resumed(source, after=6)
    assert source.lost == 2


def test_first_request_of_a_consumer_is_answered_and_no_unasked_rows() -> None:
    source = HAInput("in", "consumer", 7, credit_bytes=_CREDIT_BYTES)
    resumed(source, after=0)
    assert not source.connected
    assert source.subscribe(0.0, _STANDBY, 1.0, sends_unasked=True) is not None
