"""Asynchronous calls of the coordinator, and all their outcomes."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from peacefs.protocol.errors import PeerTimeout, PeerUnreachable
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import Completed, Done
from peacefs.protocol.trace_context import TraceContext, current, serving
from peacefs.runtime import effects as fx
from peacefs.runtime.begun_calls import with_begun_calls
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.reactor import Reactor
from peacefs.runtime.thread_driver import ThreadDriver

PATIENCE_S = 120.0
ASKED = Done()
ANSWER = Completed(7)


class Coordinator:
    """Answers asynchronous calls when the test says so, and blocking ones at once."""

    def __init__(self):
        self.begun = []
        self.asked = []
        self.takes_calls = True

    def begin(self, message):
        if not self.takes_calls:
            return None
        self.begun.append(Future())
        return self.begun[-1]

    def call(self, message, timeout_s):
        self.asked.append((message, timeout_s))
        return ANSWER


class Ended:
    """The outcome of a participant."""

    def __init__(self):
        self.answers = []
        self.faults = []
        self.threads = []
        self.contexts = []
        self._over = threading.Event()

    def of(self, steps):
        self.threads.append(threading.current_thread().name)
        self.contexts.append(current())
        try:
            self.answers.append((yield from steps))
        except PeerTimeout as fault:
            self.faults.append(fault)
            self.answers.append((yield from fx.wall_clock()))
        self.threads.append(threading.current_thread().name)
        self.contexts.append(current())

    def ended(self, fault):
        assert fault is None, fault
        self._over.set()

    def wait(self):
        assert self._over.wait(PATIENCE_S), "it has not ended"
        return self


@pytest.fixture
def coordinator():
    return Coordinator()


@pytest.fixture
def reactor(coordinator):
    driver = ThreadDriver(ConnectionPool(Identity("", "client", "test", None)), coordinator.call)
    reactor = Reactor(driver, "shared", workers_max=4)
    reactor.start()
    yield reactor
    reactor.stop()


@pytest.fixture
def begin(reactor, coordinator):
    def begin(steps):
        ended = Ended()
        reactor.begin(with_begun_calls(ended.of(steps), coordinator.begin), ended.ended)
        return ended

    return begin


def until_begun(coordinator, count):
    """Return the futures when a number of calls has been started."""
    begun = threading.Event()
    while len(coordinator.begun) < count:
        begun.wait(0.001)
    return list(coordinator.begun)


def test_begun_calls_of_many_participants_take_one_thread(begin, coordinator):
    context = TraceContext("the-request")
    with serving(context):
        participants = [begin(fx.call(ASKED, Completed, timeout_s=PATIENCE_S)) for _ in range(50)]
    calls = until_begun(coordinator, 50)
    workers = [thread.name for thread in threading.enumerate() if thread.name.startswith("shared-worker")]
    for call in calls:
        call.set_result(ANSWER)
    for participant in participants:
        assert participant.wait().answers == [ANSWER]
        assert participant.threads == ["shared", "shared"]
        assert participant.contexts == [context, context]
    assert workers == []
    assert coordinator.asked == []


def test_begun_call_that_fails_is_made_once_more_in_the_time_that_is_left(begin, coordinator):
    participant = begin(fx.call(ASKED, Completed, timeout_s=PATIENCE_S))
    (call,) = until_begun(coordinator, 1)
    call.set_exception(PeerUnreachable("the connection broke"))
    assert participant.wait().answers == [ANSWER]
    ((message, timeout_s),) = coordinator.asked
    assert message == ASKED
    assert 0 < timeout_s < PATIENCE_S


def test_call_that_cannot_be_begun_is_left_to_a_thread(begin, coordinator):
    coordinator.takes_calls = False
    participant = begin(fx.call(ASKED, Completed, timeout_s=PATIENCE_S))
    assert participant.wait().answers == [ANSWER]
    assert coordinator.asked == [(ASKED, PATIENCE_S)]


def test_begun_call_that_is_not_answered_ends_at_its_deadline_and_is_given_up(begin, coordinator):
    participant = begin(fx.call(ASKED, Completed, timeout_s=0.01))
    assert "did not answer within 0.01 s" in participant.wait().faults[0].message
    assert coordinator.begun[0].cancelled()
    assert len(participant.answers) == 1, "it goes on after the fault"


def test_participant_that_is_closed_at_its_call_is_closed_within():
    closed = []

    def steps():
        try:
            yield from fx.call(ASKED, Completed)
        finally:
            closed.append(True)

    wrapped = with_begun_calls(steps(), lambda message: None)
    assert isinstance(next(wrapped), fx.Now)
    wrapped.close()
    assert closed == [True]
