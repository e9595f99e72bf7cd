"""A node that is slow with its rows receives urgent messages in time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pyarrow as pa

from peacefs.dataflow.hosts.links import Links
from peacefs.dataflow.hosts.membership import Member, Membership
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.ring.messages import URGENT, ResultsTaken, Tuples
from peacefs.dataflow.ring.tokens import WHOLE

_BATCHES = 200
_ROWS = 20_000
_BATCH_S = 0.002


def _batch(number: int) -> Tuples:
    rows = pa.record_batch({"word": pa.array(np.arange(_ROWS))})
    return Tuples("text", number, number - 1, number, 0, (WHOLE,), HashedRows(np.arange(_ROWS), rows))


def _order(*, urgent: bool) -> list[object]:
    """Send many batches and then a message to a slow node. Return them in order of arrival."""
    heard: list[object] = []

    def received(_: str, message: Any) -> None:
        if isinstance(message, Tuples):
            time.sleep(_BATCH_S)
        heard.append(message)

    async def main() -> None:
        node = Links(Membership(Member("node-1", "token")), {}, received, lambda _: None)
        edge = Links(Membership(Member("edge", "token")), {}, lambda *_: None, lambda _: None)
        address = node.listen()
        try:
            for number in range(1, _BATCHES + 1):
                edge.send("node-1", address, _batch(number))
            edge.send("node-1", address, ResultsTaken(7), urgent=urgent)
            async with asyncio.timeout(60.0):
                while len(heard) < _BATCHES + 1:  # noqa: ASYNC110 - the node counts, and tells nobody
                    await asyncio.sleep(0.01)
        finally:
            await edge.close()
            await node.close()

    asyncio.run(main())
    return heard


def test_urgent_message_does_not_wait_behind_rows_and_rows_keep_their_order() -> None:
    assert ResultsTaken in URGENT
    heard = _order(urgent=True)
    assert heard.index(ResultsTaken(7)) < _BATCHES // 2
    assert [each.number for each in heard if isinstance(each, Tuples)] == list(range(1, _BATCHES + 1))
    assert _order(urgent=False)[-1] == ResultsTaken(7), "on one connection it comes last"
