"""The shared memory of uploads is limited, and divided so that some upload can always finish."""

from __future__ import annotations

import asyncio
import random

import pytest

from peacefs.datanode.gateway.buffer_budget import BufferBudget, BufferShare
from peacefs.datanode.gateway.upload import Upload, body_pieces
from peacefs.protocol.errors import Overloaded, PeerTimeout, PeerUnreachable


def test_an_upload_waits_for_what_another_gives_back():
    async def story():
        budget = BufferBudget(100, queue_timeout_s=5)
        first, second, third = BufferShare(budget), BufferShare(budget), BufferShare(budget)
        await first.take(90)
        await second.take(20)  # exceeds the budget
        waiting = asyncio.create_task(third.take(30))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        first.give_back(90)
        await waiting
        for share in (first, second, third):
            share.close()
        await first.take(100)

    asyncio.run(story())


def test_upload_that_waits_too_long_is_told_to_come_again():
    async def story():
        budget = BufferBudget(10, queue_timeout_s=0.05)
        one, two = BufferShare(budget), BufferShare(budget)
        await one.take(10)
        await one.take(10)  # exceeds the budget, and may continue to do so
        with pytest.raises(Overloaded, match="memory is full of other uploads"):
            await two.take(1)
        one.close()
        await two.take(10)

    asyncio.run(story())


def test_client_whose_uploads_hold_its_share_leaves_room_to_others():
    async def story():
        budget = BufferBudget(100, queue_timeout_s=0.05, per_client_max=60)
        hogs = [BufferShare(budget, "hog") for _ in range(3)]
        other = BufferShare(budget, "other")
        await hogs[0].take(60)
        await hogs[1].take(10)  # exceeds its share, so that one of them can finish
        with pytest.raises(Overloaded):
            await hogs[2].take(1)
        await other.take(30)
        hogs[0].close()
        await hogs[2].take(20)
        for share in (*hogs[1:], other):
            share.close()
        await other.take(100)

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.evidence("everything-is-bounded")
def test_uploads_that_grow_side_by_side_all_finish_within_a_chunk_of_the_budget(seed):
    """Each upload holds up to a chunk of 50; a strict limit of 100 would block all of them."""
    chunk, limit = 50, 100
    held = 0
    most = 0

    async def upload(budget, rng):
        nonlocal held, most
        share = BufferShare(budget, rng.choice(("one client", "another")))
        for _ in range(3):
            filled = 0
            while filled < chunk:
                count = min(rng.randint(1, 9), chunk - filled)
                await share.take(count)
                filled += count
                held += count
                most = max(most, held)
                await asyncio.sleep(0)
            share.give_back(chunk)
            held -= chunk
        share.close()

    async def story():
        budget = BufferBudget(limit, queue_timeout_s=5, per_client_max=limit * 3 // 4)
        async with asyncio.timeout(5):
            await asyncio.gather(*(upload(budget, random.Random(seed * 10 + n)) for n in range(8)))

    asyncio.run(story())
    assert held == 0
    assert most <= limit + chunk


def receiver(*events):
    """Return an ASGI `receive` that returns these events and then blocks."""
    pending = list(events)

    async def receive():
        if not pending:
            await asyncio.Event().wait()
        return pending.pop(0)

    return receive


def body(piece, more=True):
    return {"type": "http.request", "body": piece, "more_body": more}


class Ledger(BufferBudget):
    """A budget that records what is returned to it."""

    def __init__(self):
        super().__init__(1000, queue_timeout_s=5)
        self.returned = []

    def give_back(self, share, count):
        self.returned.append(count)
        super().give_back(share, count)


def test_a_writer_gives_a_chunk_back_when_it_takes_the_first_byte_of_the_next():
    async def story():
        ledger = Ledger()
        pieces = body_pieces(receiver(body(b"a" * 10), body(b"b" * 10), body(b"c" * 5, more=False)), lambda: 5)
        upload = Upload(pieces, ledger, chunk_bytes=10)
        async for piece in upload.pieces:
            assert await upload.take_in(piece) is None
        upload.stream.finish()
        for taken, returned in ((10, []), (1, [10]), (9, [10]), (5, [10, 10])):
            assert len(upload.stream.take(taken)) == taken
            await asyncio.sleep(0)  # another thread reads the stream, and the result arrives through the loop
            assert ledger.returned == returned
        upload.close()
        assert ledger.returned == [10, 10, 5]

    asyncio.run(story())


def test_a_client_that_goes_or_stops_is_told_apart():
    async def story():
        for events, error in ((({"type": "http.disconnect"},), PeerUnreachable), ((), PeerTimeout)):
            pieces = body_pieces(receiver(body(b"x"), *events), lambda: 0.05)
            assert await anext(pieces) == b"x"
            with pytest.raises(error, match="nothing was written"):
                await anext(pieces)

    asyncio.run(story())
