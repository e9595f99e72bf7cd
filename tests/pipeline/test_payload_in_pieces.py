"""A payload received in pieces: the same bytes in order, whatever buffers and segments are used."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from peacefs.protocol.errors import PeerTimeout, PeerUnreachable
from peacefs.protocol.frames import encode
from peacefs.protocol.limits import KIB, MIB, checksum_block_bytes, frame_ahead_bytes, packet_bytes
from peacefs.protocol.messages import Packet
from peacefs.runtime import sending_end
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.disk_files import DiskFile

PATIENCE_S = 120.0
LENGTHS = (
    0,
    1,
    frame_ahead_bytes - 1,
    frame_ahead_bytes,
    checksum_block_bytes,
    packet_bytes + 1,
    MIB,
    3 * MIB + 7,
)


@pytest.fixture
def pair():
    """Yield both ends of a connection after its handshake, with small socket buffers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
        far, _address = listener.accept()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
    ends = SocketConnection(near, "who sends"), SocketConnection(far, "who receives")
    for end in ends:
        end.greeted()
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def beside():
    """Run a function on a thread; yield its exception once it has ended."""
    threads, faults = [], []

    def run(act):
        def noted():
            try:
                act()
            except Exception as fault:
                faults.append(fault)

        threads.append(threading.Thread(target=noted))
        threads[-1].start()

    def ended():
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        return faults

    run.ended = ended
    yield run
    ended()


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "chunk"
    path.write_bytes(os.urandom(4 * MIB))
    file = DiskFile(os.open(path, os.O_RDONLY))
    yield file
    os.close(file.descriptor)


@pytest.mark.parametrize("seed", range(6))
def test_pieces_of_any_size_are_the_payload_and_the_next_frame_follows(pair, beside, seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    ours, theirs = pair
    payloads = [rng.randbytes(rng.choice(LENGTHS)) for _ in range(12)]
    beside(lambda: [theirs.send(Packet(at, b"s"), payload, PATIENCE_S) for at, payload in enumerate(payloads)])
    target = memoryview(bytearray(2 * MIB))

    def room():
        return rng.choice([None, target[: rng.randrange(MIB)], target])

    def takes():
        return rng.choice([frame_ahead_bytes + 1, checksum_block_bytes, packet_bytes, MIB, 5 * MIB])

    for at, payload in enumerate(payloads):
        frame = ours.receive(PATIENCE_S, room(), takes())
        assert frame.message.offset == at
        assert len(frame.payload) + frame.unread == len(payload)
        come, left = bytes(frame.payload), frame.unread
        while left:
            count, into = min(left, takes()), room()
            piece = ours.receive_more(count, PATIENCE_S, into)
            if into is not None and frame_ahead_bytes < count <= len(into):
                assert piece.obj is target.obj, "a large piece is received where it is wanted"
            come += piece
            left -= len(piece)
        assert come == payload
    assert beside.ended() == []


@pytest.mark.evidence("slow-peer")
def test_slow_receiver_of_a_long_payload_gets_it_all(pair, beside, stored, monkeypatch):
    """Each system call has the deadline, not all of them together."""
    ours, theirs = pair
    sendfile, interrupted = os.sendfile, []

    def send_a_little(out, source, offset, count):
        # Simulate an interruption by a signal.
        interrupted.append(offset)
        return sendfile(out, source, offset, min(count, checksum_block_bytes))

    monkeypatch.setattr(os, "sendfile", send_a_little)
    began_s = time.monotonic()
    beside(lambda: theirs.send_file(Packet(0, b""), stored, 0, 2 * MIB, 0.5))
    left = ours.receive(PATIENCE_S, None, checksum_block_bytes).unread
    while left:
        time.sleep(0.03)
        left -= len(ours.receive_more(checksum_block_bytes, PATIENCE_S))
    assert beside.ended() == []
    assert time.monotonic() - began_s > 0.5 and len(interrupted) >= 2 * MIB // checksum_block_bytes


@pytest.mark.evidence("slow-peer")
def test_receiver_that_stops_within_a_payload_is_left_at_the_deadline(pair, beside, stored):
    ours, theirs = pair
    beside(lambda: theirs.send_file(Packet(0, b""), stored, 0, 4 * MIB, 0.3))
    assert ours.receive(PATIENCE_S, None, packet_bytes).unread
    (fault,) = beside.ended()
    assert isinstance(fault, PeerTimeout)


@pytest.mark.evidence("slow-peer")
def test_receiver_that_takes_next_to_nothing_is_left_at_the_deadline(pair, stored, monkeypatch):
    _ours, theirs = pair
    sendfile, now_s = os.sendfile, [0.0]

    def send_next_to_nothing(out, source, offset, count):
        # Simulate a partial send after waiting for buffer space.
        now_s[0] += 0.3
        return sendfile(out, source, offset, 1000)

    monkeypatch.setattr(os, "sendfile", send_next_to_nothing)
    monkeypatch.setattr(sending_end, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    with pytest.raises(PeerTimeout, match="too slowly"):
        theirs.send_file(Packet(0, b""), stored, 0, 10_000, 0.3)


@pytest.mark.evidence("slow-peer")
def test_a_long_piece_that_comes_slowly_comes_whole_and_one_that_drips_does_not(pair, beside):
    ours, theirs = pair
    payload = os.urandom(3 * MIB)
    theirs._socket.sendall(encode(Packet(0, b""), len(payload) + MIB))

    def send_slowly():
        for at in range(0, len(payload), 128 * KIB):
            time.sleep(0.03)
            theirs._socket.sendall(payload[at : at + 128 * KIB])

    beside(send_slowly)
    target = memoryview(bytearray(len(payload)))
    assert ours.receive(PATIENCE_S, target, frame_ahead_bytes + 1).unread
    rest = len(payload) - frame_ahead_bytes - 1
    began_s = time.monotonic()
    assert ours.receive_more(rest, 0.3, target) == payload[-rest:]
    assert time.monotonic() - began_s > 0.3
    dripping = threading.Event()

    def drip():
        while not dripping.wait(0.02):
            theirs._socket.sendall(b"drip")

    beside(drip)
    with pytest.raises(PeerTimeout, match="too slowly"):
        ours.receive_more(MIB, 0.3, target)
    dripping.set()


@pytest.mark.evidence("datanode-fails-in-a-read")
def test_receiver_that_hangs_up_within_a_payload_is_gone(pair):
    ours, theirs = pair
    theirs._socket.sendall(encode(Packet(0, b""), 4 * MIB) + bytes(checksum_block_bytes + 5))
    theirs.close()
    assert ours.receive(PATIENCE_S, None, checksum_block_bytes).unread == 4 * MIB - checksum_block_bytes
    with pytest.raises(PeerUnreachable):
        ours.receive_more(checksum_block_bytes, PATIENCE_S)
