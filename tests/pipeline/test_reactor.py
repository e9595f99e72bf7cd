"""Many participants on one thread: a waiting one delays no other, and every wait ends."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time

import pytest
from support.waiting import wait_until

from peacefs.protocol.errors import PeerTimeout, PeerUnreachable, ProtocolViolation
from peacefs.protocol.frames import encode
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB, frame_ahead_bytes
from peacefs.protocol.messages import Packet
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.kept_files import KeptFiles
from peacefs.runtime.reactor import Reactor
from peacefs.runtime.thread_driver import ThreadDriver

PATIENCE_S = 120.0


class Outcome:
    """The outcome of a participant."""

    def __init__(self):
        self.result = None
        self.fault = None
        self.threads = []
        self._over = threading.Event()

    def of(self, steps):
        self.result = yield from steps

    def ended(self, fault):
        self.fault = fault
        self._over.set()

    @property
    def is_over(self):
        return self._over.is_set()

    def wait(self):
        assert self._over.wait(PATIENCE_S), "it has not ended"
        return self


@pytest.fixture
def driver():
    pool = ConnectionPool(Identity("", "client", "test", None))
    return ThreadDriver(pool, lambda message, timeout_s: message, files_kept_max=4)


@pytest.fixture
def reactor(driver):
    reactor = Reactor(driver, "test-reactor", workers_max=4)
    reactor.start()
    yield reactor
    reactor.stop()


@pytest.fixture
def begin(reactor):
    def begin(steps):
        outcome = Outcome()
        reactor.run(outcome.of(steps), outcome.ended)
        return outcome

    return begin


@pytest.fixture
def pair():
    """Yield connections after their handshake, each with the socket at its other end."""
    with contextlib.ExitStack() as opened:

        def make():
            with socket.create_server(("127.0.0.1", 0)) as listener:
                theirs = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
                ours, _address = listener.accept()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            connection = SocketConnection(ours, "the test")
            connection.greeted()
            opened.callback(theirs.close)
            opened.callback(connection.close)
            return connection, theirs

        yield make


def framed(data, offset=0):
    return encode(Packet(offset, b""), len(data)) + data


def echo(connection, rounds):
    """Send back everything that arrives."""
    for _ in range(rounds):
        frame = yield from fx.next_request(connection, timeout_s=PATIENCE_S)
        yield from fx.send(connection, frame.message, bytes(frame.payload), timeout_s=PATIENCE_S)


def received(sock, count):
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece
        data += piece
    return data


def test_a_hundred_connections_take_one_thread(begin, pair):
    pairs = [pair() for _ in range(100)]
    outcomes = [begin(echo(connection, 3)) for connection, _theirs in pairs]
    before = threading.active_count()
    for turn in range(3):
        sent = framed(b"%d" % turn)
        for _connection, theirs in pairs:
            theirs.sendall(sent)
        assert all(received(theirs, len(sent)) == sent for _connection, theirs in pairs)
    assert threading.active_count() == before
    assert all(outcome.wait().fault is None for outcome in outcomes)


@pytest.mark.parametrize("size", [0, 1, 1000, frame_ahead_bytes - 200, frame_ahead_bytes, 3 * MIB])
def test_frames_of_every_size_come_whole_however_they_are_cut(begin, pair, size):
    connection, theirs = pair()
    outcome = begin(echo(connection, 4))
    data = os.urandom(size)
    sent = framed(data)
    sending = threading.Thread(
        target=lambda: [
            theirs.sendall(piece)
            for cut in (1, 19, 20, len(sent) // 2)
            for piece in (sent[:cut], sent[cut:])
            if piece
        ]
    )
    sending.start()
    for _ in range(4):
        assert received(theirs, len(sent)) == sent
    sending.join()
    assert outcome.wait().fault is None


def test_several_frames_that_come_at_once_are_one_after_the_other(begin, pair):
    connection, theirs = pair()
    outcome = begin(echo(connection, 50))
    sent = b"".join(framed(b"%d" % number * 100, number) for number in range(50))
    theirs.sendall(sent)
    assert received(theirs, len(sent)) == sent
    assert outcome.wait().fault is None


def syncing_when_told(connection, on, rounds=1):
    for _ in range(rounds):
        yield from fx.next_request(connection, timeout_s=PATIENCE_S)
        yield from fx.sync(fx.File())
        on.append(threading.current_thread().name)
        yield from fx.send(connection, Packet(0, b""), timeout_s=PATIENCE_S)


@pytest.mark.evidence("disk-hangs")
def test_a_quick_disk_is_waited_for_and_a_slow_one_is_not(begin, pair, driver):
    lags_s, at_disk, on = iter((0.0,) * 20 + (0.05,) * 20), [], []
    other_is_answered = threading.Event()

    def sync(effect):
        at_disk.append(threading.current_thread().name)
        lag_s = next(lags_s, None)
        if lag_s is None:
            assert other_is_answered.wait(PATIENCE_S)
        else:
            time.sleep(lag_s)

    driver._perform[fx.Sync] = sync
    connection, theirs = pair()
    begin(syncing_when_told(connection, on, rounds=41))
    for _ in range(40):
        theirs.sendall(framed(b"sync"))
        received(theirs, len(framed(b"")))
    assert at_disk[0] == "test-reactor"
    assert "worker" in at_disk[-1]
    assert set(on) == {"test-reactor"}, "who has been to the disk goes on beside the reactor"
    # While it works on the slow disk, others are served.
    other, its_peer = pair()
    begin(echo(other, 1))
    theirs.sendall(framed(b"sync"))
    its_peer.sendall(framed(b"hello"))
    assert received(its_peer, len(framed(b"hello"))) == framed(b"hello")
    other_is_answered.set()
    received(theirs, len(framed(b"")))


def test_slow_disks_answer_reaches_the_participant_that_asked(begin, driver):
    def sync(effect):
        time.sleep(0.05)
        raise OSError(errno.EIO, "the disk is broken")

    def steps():
        heard = []
        for _ in range(3):
            yield from fx.sleep(0.001)
            try:
                yield from fx.sync(fx.File())
            except OSError as fault:
                heard.append(fault.errno)
        return heard

    driver._perform[fx.Sync] = sync
    assert begin(steps()).wait().result == [errno.EIO] * 3


@pytest.mark.evidence("disk-hangs")
def test_from_a_thread_that_hangs_at_the_disk_another_takes_over(begin, pair, driver, caplog, monkeypatch):
    monkeypatch.setattr("peacefs.runtime.reactor.reactor_stuck_s", 0.2)
    disk, at_disk = threading.Event(), threading.Event()

    def hang(effect):
        at_disk.set()
        disk.wait(PATIENCE_S)

    driver._perform[fx.Sync] = hang
    on = []
    (connection, theirs), (other, its_peer) = pair(), pair()
    waiting, echoing = begin(syncing_when_told(connection, on)), begin(echo(other, 50))
    theirs.sendall(framed(b"sync"))
    assert at_disk.wait(PATIENCE_S)
    sent = framed(b"hello")
    for _ in range(49):
        its_peer.sendall(sent)
        assert received(its_peer, len(sent)) == sent
    assert not waiting.is_over
    assert any("continuing without it" in record.message for record in caplog.records)
    disk.set()
    received(theirs, len(framed(b"")))
    its_peer.sendall(sent)
    assert received(its_peer, len(sent)) == sent
    assert waiting.wait().fault is None and echoing.wait().fault is None


def test_much_data_is_moved_by_a_worker_until_the_next_request(begin, pair, driver):
    connection, theirs = pair()
    on = []

    def note():
        on.append(threading.current_thread().name)
        yield fx.Now()

    def steps():
        yield from fx.next_request(connection, timeout_s=PATIENCE_S)
        yield from note()
        yield from fx.receive(connection, timeout_s=PATIENCE_S)
        yield from note()
        yield from fx.next_request(connection, timeout_s=PATIENCE_S)
        yield from note()

    outcome = begin(steps())
    theirs.sendall(framed(bytes(MIB)))
    theirs.sendall(framed(b"small"))
    while len(on) < 2:
        time.sleep(0.001)
    theirs.sendall(framed(b"the next"))
    assert outcome.wait().fault is None
    assert on[0] == on[1] and "worker" in on[0] and on[2] == "test-reactor"


def test_file_that_is_kept_and_in_memory_is_read_without_a_worker(begin, driver, tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(b"abcdef")
    on = []

    def read(length):
        data = yield from fx.read_part(str(path), 1, length)
        on.append(threading.current_thread().name)
        return data

    def on_the_reactor():
        yield from fx.sleep(0.001)
        return (yield from read(3))

    outcomes = [begin(on_the_reactor()).wait() for _ in range(2)]
    assert [(outcome.result, outcome.fault) for outcome in outcomes] == [(b"bcd", None)] * 2
    assert "worker" in on[0], "to open it may take long"
    assert on[1] == "test-reactor"
    beyond = begin(read(100)).wait()
    assert (beyond.result, beyond.fault) == (b"bcdef", None)
    path.unlink()
    assert begin(read(3)).wait().result == b"bcd", "it is open still"
    driver.kept_files.close()
    assert isinstance(begin(read(3)).wait().fault, FileNotFoundError)


def test_file_that_has_been_kept_for_long_is_closed_though_nobody_reads(begin, driver, tmp_path):
    driver.kept_files = KeptFiles(files_max=4, kept_s=0.0)
    path = tmp_path / "segment"
    path.write_bytes(b"abcdef")
    assert begin(fx.read_part(str(path), 0, 3)).wait().result == b"abc"
    wait_until(lambda: not driver.kept_files, "the reactor's watch has it closed")


def test_silence_ends_at_the_deadline_and_a_drip_does_not_move_it(begin, pair):
    connection, theirs = pair()
    began = time.monotonic()
    silent = begin(fx.receive(pair()[0], timeout_s=0.3))
    dripped_on = begin(fx.receive(connection, timeout_s=0.3))
    for byte in framed(b"x" * 100)[:100]:
        theirs.sendall(bytes([byte]))
        if dripped_on.is_over:
            break
        time.sleep(0.01)
    assert isinstance(silent.wait().fault, PeerTimeout)
    assert isinstance(dripped_on.wait().fault, PeerTimeout)
    assert 0.3 <= time.monotonic() - began < 60


def test_an_earlier_deadline_than_all_others_is_kept(begin, pair):
    """The reactor sleeps until the first deadline when the second one arrives, from another thread."""
    begin(fx.receive(pair()[0], timeout_s=1000.0))
    time.sleep(0.05)
    began = time.monotonic()
    assert isinstance(begin(fx.receive(pair()[0], timeout_s=0.2)).wait().fault, PeerTimeout)
    assert time.monotonic() - began < 60


def test_receiver_that_takes_nothing_is_left_at_the_deadline_and_a_late_one_gets_all(begin, pair):
    connection, theirs = pair()
    data = bytes(4 * MIB)
    never, _its_peer = pair()
    in_time = begin(fx.send(connection, Packet(0, b""), data, timeout_s=PATIENCE_S))
    left = begin(fx.send(never, Packet(0, b""), data, timeout_s=0.2))
    assert isinstance(left.wait().fault, PeerTimeout)
    assert not in_time.is_over
    assert received(theirs, len(framed(data))) == framed(data)
    assert in_time.wait().fault is None


def test_tickets_that_others_fire_and_tickets_that_nobody_does(begin):
    fired, never, before = fx.Ticket(), fx.Ticket(), fx.Ticket()
    before.fire()
    outcomes = [
        begin(fx.wait(ticket, timeout_s=seconds))
        for ticket, seconds in ((fired, PATIENCE_S), (never, 0.1), (before, PATIENCE_S))
    ]
    began = time.monotonic()
    threading.Thread(target=fired.fire).start()
    outcomes[0].wait()
    assert time.monotonic() - began < PATIENCE_S / 2
    assert [outcome.wait().result for outcome in outcomes] == [True, False, True]
    never.fire()


def test_a_ticket_is_fired_at_its_deadline_a_thousand_times(begin):
    """Whichever happens first, the participant continues once."""
    for _ in range(1000):
        ticket = fx.Ticket()
        outcome = begin(fx.wait(ticket, timeout_s=0.0005))
        time.sleep(0.0004)
        ticket.fire()
        assert outcome.wait().fault is None


def test_sleeping_takes_as_long_as_it_should(begin):
    began = time.monotonic()
    assert begin(fx.sleep(0.2)).wait().fault is None
    assert 0.2 <= time.monotonic() - began < 60


def test_faults_of_peers_are_thrown_into_the_participant(begin, pair):
    connection, theirs = pair()
    hung_up = begin(fx.receive(connection, timeout_s=PATIENCE_S))
    theirs.close()
    assert isinstance(hung_up.wait().fault, PeerUnreachable)
    connection, theirs = pair()
    theirs.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert isinstance(begin(fx.receive(connection, timeout_s=PATIENCE_S)).wait().fault, ProtocolViolation)


def test_shutting_a_connection_down_wakes_who_waits_for_it(begin, pair):
    connection, _theirs = pair()
    waiting = begin(fx.receive(connection, timeout_s=PATIENCE_S))
    connection.shut_down()
    assert isinstance(waiting.wait().fault, PeerUnreachable)


def test_a_bug_ends_its_participant_and_no_other(begin, pair):
    connection, theirs = pair()
    other = begin(echo(connection, 1))

    def bug():
        yield from fx.sleep(0.01)
        raise RuntimeError("a bug")

    assert isinstance(begin(bug()).wait().fault, RuntimeError)
    theirs.sendall(framed(b"on"))
    assert received(theirs, len(framed(b"on"))) == framed(b"on")
    assert other.wait().fault is None


def test_one_that_was_never_started_can_be_stopped(driver):
    Reactor(driver, "never", workers_max=1).stop()


@pytest.mark.evidence("flood")
def test_receiver_without_a_pause_lets_the_others_go_first(begin, pair):
    """Its frames take turns with all others, although there is always another one."""
    connection, theirs = pair()
    (other, its_peer), order, sent = pair(), [], threading.Event()

    def take(connection, name, count):
        for _ in range(count):
            yield from fx.receive(connection, timeout_s=PATIENCE_S)
            order.append(name)
            sent.wait(PATIENCE_S)
            time.sleep(0.0005)

    outcome, between = begin(take(connection, "all at once", 400)), begin(take(other, "between", 1))
    theirs.sendall(framed(b"") * 400)
    its_peer.sendall(framed(b""))
    sent.set()
    assert outcome.wait().fault is None and between.wait().fault is None
    assert order.index("between") < 300


@pytest.mark.evidence("thread-suspended")
def test_a_thread_that_comes_back_late_takes_nothing_from_its_successor(begin, pair, reactor, caplog, monkeypatch):
    """It was suspended just before it would have polled all connections."""
    monkeypatch.setattr("peacefs.runtime.reactor.reactor_stuck_s", 0.2)
    poll, late, may_go_on = reactor._poll, [], threading.Event()

    def suspended():
        reactor._poll = poll
        late.append(threading.current_thread())
        may_go_on.wait(PATIENCE_S)
        poll()

    reactor._poll = suspended
    connection, theirs = pair()
    outcome = begin(echo(connection, 20))
    sent = framed(b"hello")
    for turn in range(20):
        theirs.sendall(sent)
        assert received(theirs, len(sent)) == sent
        if turn == 10:
            may_go_on.set()
            late[0].join(PATIENCE_S / 3)
            assert not late[0].is_alive(), "two threads wait for the same connections"
    assert outcome.wait().fault is None
    assert any("continuing without it" in record.message for record in caplog.records)
