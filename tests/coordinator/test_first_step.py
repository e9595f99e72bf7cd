"""A call that never waits runs without a task. A call that waits continues in a task, with the same results."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from peacefs.service.first_step import NOTHING_TO_WAIT_FOR, begin

_SAID: ContextVar[str] = ContextVar("said", default="nothing")


def test_what_never_waits_is_done_at_once_and_leaves_no_trace_in_the_context() -> None:
    async def at_once() -> str:
        await NOTHING_TO_WAIT_FOR
        _SAID.set("within")
        return "done"

    async def story() -> None:
        before = asyncio.all_tasks()
        assert begin(at_once()) == "done"
        assert asyncio.all_tasks() == before and _SAID.get() == "nothing"

    asyncio.run(story())


def test_a_fault_before_the_first_wait_is_raised_at_once() -> None:
    async def fails() -> None:
        raise ValueError("no")

    async def story() -> None:
        with pytest.raises(ValueError, match="no"):
            begin(fails())

    asyncio.run(story())


def waited_for(*steps: str) -> tuple[Coroutine[Any, Any, list[str]], list[asyncio.Future[str]]]:
    """Return a coroutine and the futures that it waits for in turn. It returns their results and its context."""
    futures: list[asyncio.Future[str]] = [asyncio.get_running_loop().create_future() for _ in steps]

    async def work() -> list[str]:
        got = []
        _SAID.set("begun")
        for future in futures:
            token = _SAID.set(f"{_SAID.get()}+")
            try:
                got.append(await future)
            except (ValueError, asyncio.CancelledError) as error:
                got.append(type(error).__name__)
            await asyncio.sleep(0)
            got.append(_SAID.get())
            _SAID.reset(token)
        return got

    return work(), futures


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_waits_goes_on_in_its_own_context_with_each_result_or_fault(count: int) -> None:
    async def story() -> list[str]:
        work, futures = waited_for(*"abc"[:count])
        task = begin(work)
        assert isinstance(task, asyncio.Task) and not task.done()
        for number, future in enumerate(futures):
            await asyncio.sleep(0)
            if number % 2:
                future.set_exception(ValueError())
            else:
                future.set_result(f"result {number}")
        return await task

    expected = ["result 0", "begun+", "ValueError", "begun+", "result 2", "begun+"]
    assert asyncio.run(story()) == expected[: 2 * count]
    assert _SAID.get() == "nothing"


def test_a_cancellation_reaches_the_code_that_waits_which_may_go_on() -> None:
    async def story() -> list[str]:
        work, futures = waited_for("a", "b")
        task = begin(work)
        assert isinstance(task, asyncio.Task)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        futures[1].set_result("later")
        return await task

    assert asyncio.run(story()) == ["CancelledError", "begun+", "later", "begun+"]


def test_a_future_that_is_done_before_the_task_begins_is_no_hindrance() -> None:
    async def story() -> list[str]:
        work, futures = waited_for("a")
        task = begin(work)
        futures[0].set_result("early")
        assert isinstance(task, asyncio.Task)
        return await task

    assert asyncio.run(story()) == ["early", "begun+"]
