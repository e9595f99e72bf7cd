"""The memory that uploads share: bounded, and never so divided that none of them can finish."""

from __future__ import annotations

import asyncio
import random

import pytest

from peacefs.datanode.gateway_budget import BufferBudget, BufferShare
from peacefs.datanode.upload import Upload, body_pieces
from peacefs.protocol.errors import Overloaded, PeerTimeout, PeerUnreachable


def test_an_upload_waits_for_what_another_gives_back():
    async def story():
        budget = BufferBudget(100, patience_s=5)
        first, second, third = BufferShare(budget), BufferShare(budget), BufferShare(budget)
        await first.take(90)
        await second.take(20)  # overdraws
        waiting = asyncio.create_task(third.take(30))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        first.give_back(90)
        await waiting
        for share in (first, second, third):
            share.close()
        await first.take(100)

    asyncio.run(story())


def test_who_waits_too_long_is_told_to_come_again():
    async def story():
        budget = BufferBudget(10, patience_s=0.05)
        one, two = BufferShare(budget), BufferShare(budget)
        await one.take(10)
        await one.take(10)  # overdraws, and may go on doing so
        with pytest.raises(Overloaded, match="memory is full of other uploads"):
            await two.take(1)
        one.close()
        await two.take(10)

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(5))
def test_uploads_that_grow_side_by_side_all_finish_within_a_chunk_of_the_budget(seed):
    """Each holds what it has until its chunk of 50 is full, so that a plain limit of 100 would stop four of them."""
    chunk, limit = 50, 100
    held = 0
    most = 0

    async def upload(budget, rng):
        nonlocal held, most
        share = BufferShare(budget)
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
        budget = BufferBudget(limit, patience_s=5)
        async with asyncio.timeout(5):
            await asyncio.gather(*(upload(budget, random.Random(seed * 10 + n)) for n in range(8)))

    asyncio.run(story())
    assert held == 0
    assert most <= limit + chunk


def receiver(*events):
    """An ASGI `receive` that gives these events and then falls silent."""
    pending = list(events)

    async def receive():
        if not pending:
            await asyncio.Event().wait()
        return pending.pop(0)

    return receive


def body(piece, more=True):
    return {"type": "http.request", "body": piece, "more_body": more}


def test_a_writer_that_takes_the_next_chunk_gives_the_last_one_back():
    async def story():
        budget = BufferBudget(1000, patience_s=5)
        pieces = body_pieces(receiver(body(b"a" * 10), body(b"b" * 10), body(b"c" * 5, more=False)), 5)
        upload = Upload(pieces, budget, block_bytes=10)
        assert await upload.receive_up_to(1000)
        rest = BufferShare(budget)
        await rest.take(975)

        async def free(count):
            """Whether so much has become free, without an overdraft."""
            await asyncio.sleep(0)
            other, third = BufferShare(budget), BufferShare(budget)
            await third.take(2000)  # whoever overdraws keeps others from it
            try:
                async with asyncio.timeout(0.05):
                    await other.take(count)
                return True
            except TimeoutError:
                return False
            finally:
                other.close()
                third.close()

        assert len(upload.stream.take(10)) == 10
        assert not await free(1)
        upload.close()
        assert len(upload.stream.take(100)) == 10

    asyncio.run(story())


def test_a_client_that_goes_or_stops_is_told_apart():
    async def story():
        for events, error in ((({"type": "http.disconnect"},), PeerUnreachable), ((), PeerTimeout)):
            pieces = body_pieces(receiver(body(b"x"), *events), 0.05)
            assert await anext(pieces) == b"x"
            with pytest.raises(error, match="nothing was written"):
                await anext(pieces)

    asyncio.run(story())
