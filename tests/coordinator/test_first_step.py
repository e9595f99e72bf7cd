"""A call whose first step runs without a task goes on in a task, with results, faults and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from peacefs.coordinator.operations.durability.durable_answers import Watched
from peacefs.coordinator.operations.waiters import NOTHING_TO_WAIT_FOR

_SAID: ContextVar[str] = ContextVar("said", default="nothing")


class Rows:
    ahead = durable = undone = 0


def begin(work: Coroutine[Any, Any, list[str]]) -> asyncio.Task[list[str]]:
    """Run the first step here, as both kinds of calls do, and the others in a task."""
    watched = Watched(Rows())
    waited = watched.step(work.send, None)

    async def go_on() -> list[str]:
        return await watched.rest(work, waited)

    return asyncio.create_task(go_on())


def test_what_never_waits_ends_at_its_first_step() -> None:
    async def at_once() -> str:
        await NOTHING_TO_WAIT_FOR
        return "done"

    with pytest.raises(StopIteration) as ended:
        Watched(Rows()).step(at_once().send, None)
    assert ended.value.value == "done"


def test_a_fault_before_the_first_wait_is_raised_at_once() -> None:
    async def fails() -> list[str]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin(fails())


def waited_for(*steps: str) -> tuple[Coroutine[Any, Any, list[str]], list[asyncio.Future[str]]]:
    """Return a coroutine and the futures that it waits for in turn. It returns their results and its context."""
    futures: list[asyncio.Future[str]] = [asyncio.get_running_loop().create_future() for _ in steps]

    async def work() -> list[str]:
        got = []
        _SAID.set("begun")
        for future in futures:
            try:
                got.append(await future)
            except (ValueError, asyncio.CancelledError) as error:
                got.append(type(error).__name__)
            await asyncio.sleep(0)
            got.append(_SAID.get())
        return got

    return work(), futures


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_waits_goes_on_in_the_context_of_its_first_step_with_each_result_or_fault(count: int) -> None:
    async def story() -> list[str]:
        work, futures = waited_for(*"abc"[:count])
        task = begin(work)
        _SAID.set("another call")
        assert not task.done()
        for number, future in enumerate(futures):
            await asyncio.sleep(0)
            if number % 2:
                future.set_exception(ValueError())
            else:
                future.set_result(f"result {number}")
        return await task

    expected = ["result 0", "begun", "ValueError", "begun", "result 2", "begun"]
    assert asyncio.run(story()) == expected[: 2 * count]


def test_a_cancellation_reaches_the_code_that_waits_which_may_go_on() -> None:
    async def story() -> list[str]:
        work, futures = waited_for("a", "b")
        task = begin(work)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        futures[1].set_result("later")
        return await task

    assert asyncio.run(story()) == ["CancelledError", "begun", "later", "begun"]


def test_a_future_that_is_done_before_the_task_begins_is_no_hindrance() -> None:
    async def story() -> list[str]:
        work, futures = waited_for("a")
        task = begin(work)
        futures[0].set_result("early")
        return await task

    assert asyncio.run(story()) == ["early", "begun"]
