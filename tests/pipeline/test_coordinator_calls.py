"""A datanode's asynchronous calls over its links to coordinators: answered, broken off, without a leader."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading

import pytest
from support.waiting import wait_until

from peacefs.datanode.control.coordinator_links import CoordinatorLinks
from peacefs.datanode.control.coordinator_session import begun_calls_max
from peacefs.datanode.store.replica_changes import SharedChanges
from peacefs.protocol.credentials import Credential
from peacefs.protocol.errors import PeacefsError, PeerUnreachable
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import (
    Completed,
    Failure,
    Heartbeat,
    HeartbeatAck,
    Register,
    Registered,
    RenewLease,
    ReportChunks,
    Usage,
)
from peacefs.protocol.tokens import Signer
from peacefs.runtime.connection_handshakes import accept_connection
from peacefs.runtime.connections import SocketConnection

PATIENCE_S = 120.0
ASKED = RenewLease("a token")
_USAGE = Usage(capacity_bytes=1, used_bytes=0, available_bytes=1)


class Coordinator:
    """Registers all datanodes, and keeps calls for the test to answer."""

    def __init__(self, signer, *, leads):
        self._me = Identity("test", "coordinator", "coordinator", signer)
        self._leads = leads
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()[:2]
        self.calls = queue.Queue()
        self.connections = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return
            connection = SocketConnection(sock, "the datanode")
            self.connections.append(connection)
            with contextlib.suppress(PeacefsError):
                accept_connection(connection, self._me)
                self._talk(connection)
            connection.close()

    def _talk(self, connection):
        while True:
            frame = connection.receive(PATIENCE_S)
            match frame.message:
                case Register():
                    connection.send(Registered(1, leads=self._leads), b"", PATIENCE_S)
                case Heartbeat():
                    connection.send(HeartbeatAck(1, leads=self._leads), b"", PATIENCE_S)
                case ReportChunks():
                    pass
                case _:
                    self.calls.put((connection, frame.tag))

    def answer(self, message):
        connection, tag = self.calls.get(timeout=PATIENCE_S)
        connection.send(message, b"", PATIENCE_S, tag)

    def hang_up(self):
        self.calls.get(timeout=PATIENCE_S)[0].shut_down()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection in list(self.connections):
            connection.shut_down()
        self._thread.join()
        self._listener.close()


class Owner:
    """A datanode without replicas."""

    def registration(self):
        return Register("dn-1", "127.0.0.1", 1, "127.0.0.1", 2, "/rack", _USAGE)

    def replicas(self):
        return []

    def usage(self):
        return _USAGE

    def samples(self):
        return []

    def disks(self):
        return []

    def epoch_seen(self, epoch):
        pass

    clock_heard = commit_heard = trust_told = epoch_seen


@pytest.fixture
def cluster():
    """Start coordinators and links to them; all end with the test."""
    with contextlib.ExitStack() as stack:

        def start(*leads):
            signer = Signer(b"s" * 32)
            coordinators = [Coordinator(signer, leads=each) for each in leads]
            for coordinator in coordinators:
                stack.callback(coordinator.close)
            addresses = [coordinator.address for coordinator in coordinators]
            me = Identity("test", "datanode", "dn-1", signer)
            links = CoordinatorLinks(addresses, me, Credential.make(), Owner(), SharedChanges(), 0)
            links.start()
            stack.callback(links.stop)
            wait_until(lambda: links.is_registered, "the datanode is registered")
            return links, coordinators

        yield start


def test_begun_call_is_answered_and_a_later_one_overtakes_it(cluster):
    links, (coordinator,) = cluster(True)
    first, second = links.begin_call(ASKED), links.begin_call(ASKED)
    _connection, first_tag = coordinator.calls.get(timeout=PATIENCE_S)
    coordinator.answer(Completed(2))
    assert second.result(PATIENCE_S) == Completed(2)
    assert not first.done()
    _connection.send(Completed(1), b"", PATIENCE_S, first_tag)
    assert first.result(PATIENCE_S) == Completed(1)


def test_begun_call_fails_with_its_connection_and_the_next_goes_over_another(cluster):
    links, (coordinator,) = cluster(True)
    broken = links.begin_call(ASKED)
    coordinator.hang_up()
    assert isinstance(broken.exception(PATIENCE_S), PeerUnreachable)
    wait_until(lambda: links.is_registered, "the datanode is registered again")
    begun = links.begin_call(ASKED)
    coordinator.answer(Completed(3))
    assert begun.result(PATIENCE_S) == Completed(3)


def test_begun_call_that_is_given_up_leaves_room_and_its_answer_is_passed_over(cluster):
    links, (coordinator,) = cluster(True)
    begun = [links.begin_call(ASKED) for _ in range(begun_calls_max)]
    assert links.begin_call(ASKED) is None, "so many at most are under way"
    begun[0].cancel()
    last = links.begin_call(ASKED)
    for _ in range(begun_calls_max + 1):
        coordinator.answer(Completed(4))
    assert last.result(PATIENCE_S) == Completed(4)


@pytest.mark.parametrize("code", ["Standby", "ServiceUnready"])
def test_begun_call_fails_where_a_coordinator_of_two_says_that_it_does_not_lead(cluster, code):
    links, (leader, _standby) = cluster(True, False)
    begun = links.begin_call(ASKED)
    leader.answer(Failure(code, "not I"))
    assert isinstance(begun.exception(PATIENCE_S), PeerUnreachable)
    refused = links.begin_call(ASKED)
    leader.answer(Failure("AccessDenied", "no"))
    assert refused.result(PATIENCE_S) == Failure("AccessDenied", "no")
    given_up = links.begin_call(ASKED)
    given_up.cancel()
    leader.answer(Completed(5))
    answered = links.begin_call(ASKED)
    leader.answer(Completed(6))
    assert answered.result(PATIENCE_S) == Completed(6)


def test_begun_call_is_refused_where_nobody_is_connected(cluster):
    links, _coordinators = cluster(True)
    links.stop()
    assert links.begin_call(ASKED) is None
