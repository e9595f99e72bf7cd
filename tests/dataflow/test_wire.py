"""Messages of dataflows as bytes: they arrive whole however they are split, and invalid bytes are refused."""

from __future__ import annotations

import random

import pytest
from simulation.seeds import seeds
from support.dataflows import SCHEMA, input_rows

from peacefs.dataflow.core.messages import (
    Ack,
    CheckpointRecorded,
    CheckpointStored,
    Credit,
    Data,
    Ended,
    Message,
    NodeAlive,
    NodeHeartbeat,
    Placement,
    Subscribe,
    Subscribed,
    Subscription,
    TakeCheckpoints,
    UnitPlacement,
    UnitStopped,
)
from peacefs.dataflow.hosts.wire import MessageReader, encode
from peacefs.dataflow.model.batches import Batch, Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.protocol.errors import ProtocolViolation

_SUBSCRIPTION = Subscription("second", 3, 1)
_ROWS = input_rows(1, batches=1, size=50)[0]
_EVERY: list[Message] = [
    Subscribe("in", _SUBSCRIPTION, 2, Position(0, 17), 4096),
    Subscribed("in", _SUBSCRIPTION, Position(0, 17), 0),
    Data("in", _SUBSCRIPTION, Batch(18, _ROWS)),
    Data("in", _SUBSCRIPTION, Batch(68, _ROWS.slice(7, 5))),
    Ended("in", _SUBSCRIPTION, 67),
    Credit("in", _SUBSCRIPTION, 8192),
    Ack("in", "second", 3, RowStage.SAFE, Position(0, 67)),
    Placement(
        4, {"second": UnitPlacement("node-1", 3, (2, 9)), "first": UnitPlacement(None, 1)}, {"node-1": "a:1"}
    ),
    NodeHeartbeat("node-1", "s", 4, "a:1"),
    NodeAlive("node-1", "s"),
    CheckpointStored("second", 3, 10),
    CheckpointRecorded("second", 3, 10),
    TakeCheckpoints(),
    UnitStopped("second", 3, "operator 'x' failed"),
]

_DATA = next(each for each in _EVERY if isinstance(each, Data))


def whole(message: Message) -> bytes:
    return b"".join(bytes(part) for part in encode(message))


@pytest.mark.parametrize("seed", seeds(5))
def test_messages_arrive_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    data = b"".join(map(whole, _EVERY))
    reader = MessageReader({"in": SCHEMA})
    arrived: list[Message] = []
    at = 0
    while at < len(data):
        end = at + chance.choice([1, 3, 16, 100, 5000])
        arrived += reader.feed(data[at:end])
        at = end
    assert arrived == _EVERY


def test_message_of_an_unknown_stream_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="cannot be read"):
        list(MessageReader({}).feed(whole(_DATA)))


def test_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    start = whole(_EVERY[0])[:4] + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    with pytest.raises(ProtocolViolation, match="too long"):
        list(MessageReader({}).feed(start))
