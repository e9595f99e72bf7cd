"""Framed control calls and everything that can go wrong; connections, time and randomness are simulated."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.control.retry import RetryPolicy
from peacefs.client.control.rpc import ControlRpc
from peacefs.client.limits import client_retry_s
from peacefs.protocol.errors import (
    FileNotFound,
    NoDatanodes,
    PeerTimeout,
    PeerUnreachable,
    ProtocolViolation,
)
from peacefs.protocol.frames import Frame
from peacefs.protocol.messages import (
    Allocated,
    Completed,
    CompleteFile,
    Created,
    CreateFile,
    Failure,
    GetLayout,
    Hop,
    Layout,
    Message,
    Opened,
    TracedMessage,
)
from peacefs.protocol.new_file import NewFile
from peacefs.runtime.connection_pool import ConnectionPool

CREATED = Created("t", Allocated(7, 8, [Hop("n1", "127.0.0.1", 1)], "chunk-token"))
#: A reply, or a fault: while connecting, or after the call was sent.
Reaction = Message | PeerUnreachable | PeerTimeout
ABSENT = PeerUnreachable("cannot connect")
LOST = PeerUnreachable("the connection broke")


class Script:
    """A coordinator and the pool of connections to it. Attempts meet one reaction each; the last one repeats."""

    def __init__(self, *reactions: Reaction) -> None:
        self._reactions = list(reactions)
        self.asked: list[Message] = []
        self.kept = self.closed = 0
        self.now_s = 0.0
        self.retry_policy = RetryPolicy(clock=lambda: self.now_s, sleep=self._sleep, rng=random.Random(1))
        pool = cast(ConnectionPool, self)
        self.calls = ControlRpc(CoordinatorAddress("c.example", 9870), pool, self.retry_policy)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def connect(self, address: tuple[str, int], _name: str, _role: str = "datanode") -> Script:
        assert address == ("c.example", 9870)
        if self._reactions[0] is ABSENT:
            self._take()
            raise ABSENT
        return self

    def _take(self) -> Reaction:
        return self._reactions.pop(0) if len(self._reactions) > 1 else self._reactions[0]

    def send_frames(self, frames: Sequence[Frame], _timeout_s: float) -> None:
        self.asked += [frame.message for frame in frames]

    def receive(self, _timeout_s: float) -> Frame:
        reaction = self._take()
        if isinstance(reaction, Message):
            return Frame(reaction)
        raise reaction

    def release(self, _connection: object) -> None:
        self.kept += 1

    def close(self, _connection: object) -> None:
        self.closed += 1


def test_create_whose_answer_is_lost_is_sent_again_as_the_same_request_over_another_connection() -> None:
    script = Script(LOST, PeerTimeout("it said nothing"), CREATED)
    request = CreateFile(NewFile(path="/a", user="alice", request_id="r"))
    assert script.calls.create(request) == CREATED
    asked = [message for message in script.asked if isinstance(message, TracedMessage)]
    assert [replace(message, trace="") for message in asked] == [request] * 3
    # Logs show one request, too.
    assert len({message.trace for message in asked}) == 1
    assert (script.closed, script.kept) == (2, 1)


def test_a_coordinator_that_never_answered_is_taken_for_absent_at_once() -> None:
    script = Script(ABSENT)
    with pytest.raises(PeerUnreachable, match=r"no address is known for the host c\.example"):
        script.calls.open("/a", "alice")
    assert script.now_s == 0.0


def test_one_that_has_answered_is_given_time_to_come_back() -> None:
    script = Script(Opened("t", Layout(0, [])), ABSENT, ABSENT, Opened("t", Layout(0, [])))
    for _ in range(2):
        assert script.calls.open("/a", "alice") == Opened("t", Layout(0, []))
    assert script.now_s > 0.0


def test_refusal_that_may_pass_is_retried_and_then_reported() -> None:
    script = Script(Failure("NoDatanodes", "none is alive"), CREATED)
    assert script.calls.create(CreateFile(NewFile(path="/a", user="alice"))) == CREATED
    for_ever = Script(Failure("NoDatanodes", "none is alive"))
    with pytest.raises(NoDatanodes, match="none is alive"):
        for_ever.calls.create(CreateFile(NewFile(path="/a", user="alice")))
    assert client_retry_s / 2 < for_ever.now_s <= client_retry_s
    assert for_ever.closed == 0, "a refusal is an answer, and the connection is good"


def test_a_refusal_that_will_not_pass_is_told_at_once() -> None:
    script = Script(Failure("FileNotFound", "/a does not exist"))
    with pytest.raises(FileNotFound, match="/a does not exist"):
        script.calls.open("/a", "alice")
    assert script.now_s == 0.0


CALLS: list[tuple[Callable[[ControlRpc], object], Message]] = [
    (lambda calls: calls.open("/a", "alice"), Completed(5)),
    (lambda calls: calls.create(CreateFile(NewFile(path="/a", user="alice"))), Layout(0, [])),
]


@pytest.mark.parametrize(("call", "reply"), CALLS)
def test_an_answer_to_something_else_is_a_fault_and_not_a_value(
    call: Callable[[ControlRpc], object], reply: Message
) -> None:
    with pytest.raises(ProtocolViolation):
        call(Script(reply).calls)


def test_calls_of_writers_and_readers_end_within_their_time() -> None:
    script = Script(Completed(5), LOST)
    assert script.calls.call(CompleteFile("t", []), 10.0) == Completed(5)
    with pytest.raises(PeerUnreachable, match="broke"):
        script.calls.call(GetLayout("t"), 10.0)
    assert script.now_s <= 5.0, "the other half is for the last attempt"
