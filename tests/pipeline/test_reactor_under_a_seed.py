"""Hundreds of connections to one reactor, with a chunk store whose disk is sometimes fast and sometimes slow.

Peers send requests of all sizes, in pieces, with pauses in the middle of frames. Some disconnect in the middle of
a frame, some stop sending, some send byte by byte, and some read their answers late. Every complete request is
answered, in order and in time; what was acknowledged is in the store; no resource remains in use. PEACEFS_SEED=n
plays another seed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import PeerTimeout, PeerUnreachable
from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import KIB, frame_ahead_bytes
from peacefs.protocol.messages import Packet
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.reactor import Reactor
from peacefs.runtime.thread_driver import ThreadDriver

_CONNECTIONS = 200
_SIZES = (0, 1, 300, 300, 300, 5000, 5000, frame_ahead_bytes - 100, frame_ahead_bytes + 1, 200 * KIB)
_SILENCE_S = 2.0
#: Maximum time to answer a complete request, on a busy machine.
_ANSWER_S = 6.0
_PATIENCE_S = 120.0
_DRIPPED = [bytes([byte]) for byte in encode(Packet(1, bytes(300)), 0)[:200]]


@dataclass(eq=False)
class Peer:
    """The far end of a connection, and its planned behaviour."""

    sock: socket.socket
    ending: str
    #: Pauses, each with the data sent after it; and the offset at which each request ends.
    pieces: deque[tuple[float, bytes]]
    ends: deque[int]
    takes_from_s: float
    sent: int = 0
    due_s: float = 0.0
    reader: FrameReader = field(default_factory=FrameReader)
    #: The chunks of a request, and the size of the answer for each.
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    #: When each request had been sent completely.
    whole_s: list[float] = field(default_factory=list)
    slowest_s: float = 0.0
    fault: Exception | None = None
    is_over: bool = False

    def go_on(self, now_s: float) -> None:
        """Send what is due, as far as possible."""
        while self.pieces and self.due_s <= now_s:
            _pause_s, data = self.pieces[0]
            try:
                count = self.sock.send(data)
            except BlockingIOError:
                return
            self.sent += count
            while self.ends and self.sent >= self.ends[0]:
                self.ends.popleft()
                self.whole_s.append(now_s)
            if count < len(data):
                self.pieces[0] = 0.0, data[count:]
                return
            self.pieces.popleft()
            if self.pieces:
                self.due_s = now_s + self.pieces[0][0]
            elif self.ending == "cut":
                self.sock.shutdown(socket.SHUT_WR)

    def take(self, now_s: float) -> None:
        data = self.sock.recv(64 * KIB)
        if not data:
            self.is_over = True
            return
        for frame in self.reader.feed(data):
            self.slowest_s = max(self.slowest_s, now_s - max(self.whole_s[len(self.answers)], self.takes_from_s))
            self.answers.append((frame.message.offset, bytes(frame.payload)))

    def is_answered(self) -> bool:
        return self.ending == "stay" and not self.pieces and len(self.answers) == len(self.whole_s)


def planned(number: int, random: Random, sock: socket.socket, store: dict[int, bytes]) -> Peer:
    """Plan up to four requests of up to three packets. The last one may be incomplete."""
    ending = random.choice((*("stay",) * 8, *("cut", "silent") * 2, "drip"))
    sent, ends = b"", deque()
    for turn in range(random.randint(1, 4)):
        chunk, content = number * 100 + turn + 1, b""
        packets = random.randint(1, 3)
        for packet in range(packets):
            is_last = packet == packets - 1
            # Only a chunk's last packet may end inside a block.
            data = random.randbytes(random.choice(_SIZES) if is_last else 64 * KIB)
            content += data
            sent += encode(Packet(chunk, block_checksums(data), is_last), len(data)) + data
        store[chunk] = content
        ends.append(len(sent))
    if ending == "drip":
        sent = sent[: ends[0]]
        ends = deque([ends[0]])
    elif ending != "stay":
        kept = random.randrange(len(sent))
        sent, ends = sent[:kept], deque(end for end in ends if end <= kept)
    cuts = sorted({0, len(sent), *(random.randint(0, len(sent)) for _ in range(random.randrange(8)))})
    pieces = deque(
        (random.choice((0.0, 0.0, random.uniform(0.0, 0.3))), sent[start:end])
        for start, end in itertools.pairwise(cuts)
    )
    if ending == "drip":
        # Send the beginning of a frame, and the rest after its deadline.
        pieces.extend((_SILENCE_S / 10, byte) for byte in _DRIPPED)
    return Peer(sock, ending, pieces, ends, time.monotonic() + random.choice((0.0, 0.0, 0.0, 0.7)))


def serving(connection: SocketConnection, store: ChunkStore) -> fx.Steps[None]:
    """Receive chunks like a pipeline's last hop, and answer with the content when each is sealed."""
    while True:
        frame = yield from fx.next_request(connection, timeout_s=_SILENCE_S)
        content = bytes(frame.payload)
        staged = store.stage(frame.message.offset, 1)
        yield from store.write(staged, frame.message.sums, content)
        while not frame.message.last:
            frame = yield from fx.receive(connection, timeout_s=_SILENCE_S)
            content += bytes(frame.payload)
            yield from store.write(staged, frame.message.sums, bytes(frame.payload))
        yield from store.seal(staged)
        yield from fx.send(connection, Packet(frame.message.offset, b""), answer_to(content), timeout_s=_ANSWER_S)


def answer_to(content: bytes) -> bytes:
    """Make short answers many times longer, so that they cannot be sent at once."""
    return content * (20 if len(content) < frame_ahead_bytes else 1)


def whole(store: ChunkStore, chunk: int) -> fx.Steps[bytes]:
    plan, data = (yield from store.open_read(chunk, 1, 0, 1 << 30)), b""
    while (blocks := (yield from store.read_blocks(plan))) is not None:
        data += blocks.data
    return data


def slow_now_and_then(driver: ThreadDriver, random: Random) -> None:
    """Make most syncs instant, some as slow as a disk, and a few as slow as a failing disk."""
    sync, lock = driver._perform[fx.Sync], threading.Lock()

    def slowly(effect: fx.Sync) -> None:
        with lock:
            lag_s = random.choice((0.0,) * 40 + (0.003,) * 20 + (0.05, 0.5))
        time.sleep(lag_s)
        sync(effect)

    driver._perform[fx.Sync] = slowly


def play(peers: list[Peer]) -> None:
    """Run until all peers have their answers, or are disconnected."""
    give_up_s = time.monotonic() + _PATIENCE_S
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.sock.setblocking(False)
            selector.register(peer.sock, selectors.EVENT_READ, peer)
        left = set(peers)
        while left:
            now_s = time.monotonic()
            assert now_s < give_up_s, f"{len(left)} still wait, {[p.ending for p in left][:5]}"
            for key, _events in selector.select(0.005):
                if now_s >= key.data.takes_from_s:
                    try:
                        key.data.take(now_s)
                    except OSError as error:
                        key.data.fault, key.data.is_over = error, True
                if key.data.is_over:
                    selector.unregister(key.fileobj)
            for peer in left:
                with contextlib.suppress(OSError):
                    peer.go_on(now_s)
            left = {peer for peer in left if not peer.is_over and not peer.is_answered()}


@pytest.mark.evidence("disk-hangs")
def test_nothing_is_lost_nobody_starves_and_nothing_is_left(tmp_path, monkeypatch):
    seed = int(os.environ.get("PEACEFS_SEED", "1"))
    print(f"PEACEFS_SEED={seed}")
    random = Random(seed)
    monkeypatch.setattr("peacefs.runtime.reactor.reactor_stuck_s", 0.2)
    before = set(threading.enumerate())
    driver = ThreadDriver(ConnectionPool(Identity("", "client", "test", None)), lambda message, timeout_s: message)
    slow_now_and_then(driver, Random(random.random()))
    store = ChunkStore(str(tmp_path), 0)
    driver.run(store.recover())
    reactor = Reactor(driver, "stressed", workers_max=_CONNECTIONS)
    faults: dict[SocketConnection, Exception | None] = {}
    all_ended = threading.Condition()
    contents: dict[int, bytes] = {}

    def over(connection: SocketConnection, fault: Exception | None) -> None:
        connection.close()
        with all_ended:
            faults[connection] = fault
            all_ended.notify()

    peers, connections = [], []
    with socket.create_server(("127.0.0.1", 0), backlog=_CONNECTIONS) as listener:
        for number in range(_CONNECTIONS):
            theirs = socket.create_connection(listener.getsockname())
            ours, _address = listener.accept()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * KIB)
            connection = SocketConnection(ours, f"peer {number}")
            connection.greeted()
            connections.append(connection)
            peers.append(planned(number, random, theirs, contents))
    reactor.start()
    for connection in connections:
        reactor.run(serving(connection, store), lambda fault, connection=connection: over(connection, fault))
    try:
        play(peers)
    finally:
        for peer in peers:
            peer.sock.close()
        with all_ended:
            ended = all_ended.wait_for(lambda: len(faults) == len(connections), _PATIENCE_S)
        reactor.stop()
    assert ended, "participants are left"

    for number, (peer, connection) in enumerate(zip(peers, connections, strict=True)):
        first = number * 100 + 1
        expected = [(chunk, answer_to(contents[chunk])) for chunk in range(first, first + len(peer.whole_s))]
        assert isinstance(faults[connection], PeerUnreachable | PeerTimeout), faults[connection]
        assert peer.answers == expected, (peer.ending, len(peer.answers), len(expected), faults[connection])
        if peer.ending in ("silent", "drip"):
            assert isinstance(faults[connection], PeerTimeout), faults[connection]
        for chunk, _answer in expected:
            assert driver.run(whole(store, chunk)) == contents[chunk]
    assert max(peer.slowest_s for peer in peers) < _ANSWER_S
    driver.run(store.close())
    late = [thread for thread in set(threading.enumerate()) - before if not _ends(thread)]
    assert not late, "threads are left"
    assert not reactor._armed and not reactor._yielded


def _ends(thread: threading.Thread) -> bool:
    thread.join(_PATIENCE_S)
    return not thread.is_alive()
