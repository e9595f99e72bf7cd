"""One client that takes all its slots leaves some to others, and waiting clients get theirs."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from peacefs.datanode.gateway.client_slots import ClientSlots
from peacefs.protocol.errors import Overloaded


def test_slots_of_one_client_run_out_before_those_of_all() -> None:
    async def story() -> None:
        slots = ClientSlots(all_max=3, each_max=2, queue_timeout_s=0.05)
        async with contextlib.AsyncExitStack() as held:
            for _ in range(2):
                await held.enter_async_context(slots.slot("hog", "too many"))
            with pytest.raises(Overloaded, match="too many; try again later"):
                await held.enter_async_context(slots.slot("hog", "too many"))
            await held.enter_async_context(slots.slot("other", "too many"))
            with pytest.raises(Overloaded):
                await held.enter_async_context(slots.slot("a third", "too many"))
        async with slots.slot("hog", ""), slots.slot("hog", ""), slots.slot("a third", ""):
            pass

    asyncio.run(story())


def test_slot_that_is_given_back_goes_to_who_waits() -> None:
    async def story() -> None:
        slots = ClientSlots(all_max=2, each_max=1, queue_timeout_s=20)
        served: list[int] = []

        async def use(number: int) -> None:
            async with slots.slot("one client", "too many"):
                await asyncio.sleep(0)
                served.append(number)

        await asyncio.gather(*(use(number) for number in range(10)))
        assert served == list(range(10))

    asyncio.run(story())
