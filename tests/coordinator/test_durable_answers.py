"""An answer waits only for the entries that it depends on, and is refused if they were undone."""

from __future__ import annotations

import asyncio

import pytest

from peacefs.coordinator.metadata.group_commit import Settled
from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.protocol.errors import ServiceUnready


class Rows:
    """Rows whose entries up to `durable` are durable."""

    def __init__(self) -> None:
        self.ahead = 0
        self.durable = 5
        self.undone = 0


class Asking:
    """One request, and the entries that it waited for."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.waited: list[int] = []
        self.answers = DurableAnswers(self.rows, self)

    def when_durable(self, number: int, settled: Settled) -> None:
        raise AssertionError("requests here wait by themselves")

    async def until_durable(self, number: int) -> None:
        self.waited.append(number)
        assert len(self.waited) < 10, "it never comes to an end"
        # Meanwhile another request reads the next entry, as it does under load.
        asyncio.get_running_loop().call_soon(setattr, self.rows, "ahead", number + 1)
        self.rows.durable = max(self.rows.durable, number)
        await asyncio.sleep(0)

    async def look(self, number: int) -> None:
        self.rows.ahead = number


def test_answer_waits_for_the_last_entry_that_it_looked_at_and_for_none_of_others() -> None:
    asking = Asking()

    async def story() -> None:
        watched = asking.answers.watched()

        async def request() -> None:
            await asking.look(7)
            await asyncio.sleep(0)
            await asking.look(6)

        await watched.run(request())
        asking.rows.ahead = 9
        await asking.answers.settle(watched)

    asyncio.run(story())
    assert asking.waited == [7]


def test_answer_within_a_request_waits_for_what_its_step_has_looked_at() -> None:
    asking = Asking()

    async def story() -> None:
        watched = asking.answers.watched()

        async def request() -> None:
            await asking.look(7)
            await asking.answers.settle(watched)

        await watched.run(request())

    asyncio.run(story())
    assert asking.waited == [7]


def test_answer_is_refused_when_what_it_looked_at_was_undone_and_its_number_used_again() -> None:
    asking = Asking()

    async def story() -> None:
        watched = asking.answers.watched()

        async def request() -> None:
            await asking.look(6)
            await asyncio.sleep(0)

        async def others() -> None:
            asking.rows.undone += 1
            # The number 6 now belongs to another entry.
            asking.rows.durable = 6

        await asyncio.gather(watched.run(request()), others())
        with pytest.raises(ServiceUnready):
            await asking.answers.settle(watched)

    asyncio.run(story())


def test_answer_of_what_is_durable_is_given_whatever_is_undone_later() -> None:
    asking = Asking()

    async def story() -> None:
        watched = asking.answers.watched()

        async def request() -> None:
            await asking.look(6)
            asking.rows.durable = 6
            await asyncio.sleep(0)
            asking.rows.undone += 1

        await watched.run(request())
        await asking.answers.settle(watched)

    asyncio.run(story())
    assert asking.waited == []
