"""Run participants together on one thread: each gets its own answers, and an error ends only one of them."""

from __future__ import annotations

import pytest

from peacefs.client.together import run_together
from peacefs.protocol.errors import BadRequest, PeacefsError
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import Done, Failure
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver


class Asked:
    """A coordinator that doubles texts, refuses texts that begin with a minus, and can raise KeyboardInterrupt."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.interrupts = False

    def __call__(self, messages, timeout_s):
        self.together.append([message.message for message in messages])
        if self.interrupts:
            self.interrupts = False
            raise KeyboardInterrupt
        return [
            BadRequest(message.message) if message.message.startswith("-") else Failure("", message.message * 2)
            for message in messages
        ]


def nobody(message, timeout_s):
    return Done()


@pytest.fixture
def driver():
    return ThreadDriver(ConnectionPool(Identity("", "client", "test", None)), nobody)


def caller(name, times):
    said = []
    for _ in range(times):
        answer = yield fx.Call(Failure("", name), 5.0)
        said.append(answer.message)
    return said


def test_calls_are_sent_together_and_each_gets_its_own_answer(driver):
    asked = Asked()
    outcomes = run_together(driver, asked, [caller("a", 2), caller("b", 0), caller("-c", 1), caller("d", 1)])
    assert outcomes[0] == ["aa", "aa"] and outcomes[1] == [] and outcomes[3] == ["dd"]
    assert isinstance(outcomes[2], PeacefsError) and outcomes[2].message == "-c"
    assert asked.together == [["a", "-c", "d"], ["a"]]


def test_ctrl_c_lets_all_clean_up_and_is_raised(driver):
    asked, cleaned = Asked(), []
    asked.interrupts = True

    def careful(name):
        try:
            yield fx.Call(Failure("", name), 5.0)
        except KeyboardInterrupt:
            cleaned.append((name, (yield fx.Call(Failure("", "abandon"), 1.0))))
            raise

    with pytest.raises(KeyboardInterrupt):
        run_together(driver, asked, [careful("a"), careful("b")])
    assert cleaned == [("a", Done()), ("b", Done())]
