"""Logs of supervised runs: an agent is asked once for all waiting readers, and unwanted logs are dropped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from peacefs.coordinator.operations.queries.run_logs import RunLogs
from peacefs.coordinator.operations.waiters import wait_on_loop
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.messages import RunLogTail, WantedLog
from peacefs.runtime.effects import Ticket
from peacefs.spark_connector.supervision.run_process import tail_of

_WANTED = WantedLog("orders", "1-2")


def test_log_is_asked_of_its_agent_once_for_all_who_wait() -> None:
    async def story() -> None:
        logs = RunLogs(wait_on_loop)
        waiting = [asyncio.create_task(logs.of("north", _WANTED)) for _ in range(3)]
        await asyncio.sleep(0)
        assert (logs.wanted_of("north"), logs.wanted_of("south")) == ([_WANTED], [])
        # Reports of other agents do not count, nor do logs of other runs.
        logs.came("south", [RunLogTail("orders", "1-2", "forged")])
        logs.came("north", [RunLogTail("orders", "1-1", "old"), RunLogTail("orders", "1-2", "the end")])
        assert await asyncio.gather(*waiting) == ["the end"] * 3
        assert logs.wanted_of("north") == []
        # A later reader does not get the earlier log.
        again = asyncio.create_task(logs.of("north", _WANTED))
        await asyncio.sleep(0)
        logs.came("north", [RunLogTail("orders", "1-2", "newer")])
        assert await again == "newer"

    asyncio.run(asyncio.wait_for(story(), 60))


def test_log_of_an_agent_that_does_not_answer_is_refused_in_words() -> None:
    async def over_at_once(_ticket: Ticket, _wait_s: float) -> None:
        pass

    logs = RunLogs(over_at_once)
    with pytest.raises(BadRequest, match="agent north has not sent the log of run 1-2"):
        asyncio.run(logs.of("north", _WANTED))
    assert logs.wanted_of("north") == []


def test_log_is_shown_from_the_beginning_of_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail_of(log) == ""
    log.write_bytes(b"first\nsecond\n\xff third\n")
    assert tail_of(log) == "first\nsecond\n\ufffd third\n"
    assert tail_of(log, 12) == "\ufffd third\n"
    log.write_bytes(b"x" * 100)
    assert tail_of(log, 10) == "x" * 10
