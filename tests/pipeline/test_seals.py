"""Sealed records with an attacker on the wire: changed, repeated, left out, moved, cut short, reflected."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from peacefs.protocol.errors import BrokenSeal, PeerUnreachable
from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import frame_ahead_bytes, packet_bytes
from peacefs.protocol.messages import Done, Packet
from peacefs.protocol.seals import FrameKeys, Opener, Sealer
from peacefs.runtime.connections import SocketConnection

TO, FRO = b"t" * 16, b"f" * 16
WORDS = [b"the first", b"the second", b"the third"]


def records() -> list[bytes]:
    sealer = Sealer(TO)
    return [b"".join(sealer.seal(word)) for word in WORDS]


def opened(*pieces: bytes, key: bytes = TO) -> bytes:
    opener = Opener(key)
    return b"".join(opener.open(piece) for piece in pieces)


def test_sealed_bytes_come_out_however_they_are_cut() -> None:
    everything = b"".join(records())
    for step in (1, 3, 7, len(everything)):
        assert opened(*(everything[at : at + step] for at in range(0, len(everything), step))) == b"".join(WORDS)


@pytest.mark.parametrize(
    "attack",
    [
        lambda first, second, third: [first, first],
        lambda first, second, third: [second],
        lambda first, second, third: [first, third],
        lambda first, second, third: [second, first],
        lambda first, second, third: [first[:-1] + bytes([first[-1] ^ 1])],
        lambda first, second, third: [first[:5] + bytes([first[5] ^ 1]) + first[6:]],
        lambda first, second, third: [first[:3] + bytes([first[3] - 1]) + first[4:]],
        lambda first, second, third: [first[:-16] + second[-16:]],
        lambda first, second, third: [b"pf" + bytes(60)],
        # From another connection, or reflected to its sender.
        lambda first, second, third: [b"".join(Sealer(FRO).seal(WORDS[0]))],
    ],
    ids=["repeated", "dropped", "left out", "swapped", "seal", "data", "length", "spliced", "plain", "reflected"],
)
@pytest.mark.evidence("frames-forged")
def test_a_record_that_is_not_in_its_place_is_refused(attack: Callable[..., list[bytes]]) -> None:
    with pytest.raises(BrokenSeal):
        opened(*attack(*records()))


def test_sealed_record_that_is_cut_short_never_comes_out() -> None:
    first, second, _third = records()
    assert opened(first, second[:-1]) == WORDS[0]


@pytest.fixture
def ends() -> Iterator[tuple[SocketConnection, SocketConnection]]:
    here, there = socket.socketpair(socket.AF_UNIX)
    pair = SocketConnection(here, "there"), SocketConnection(there, "here")
    pair[0].greeted()
    pair[1].greeted()
    pair[0].seal(FrameKeys(TO, FRO))
    pair[1].seal(FrameKeys(FRO, TO))
    yield pair
    for end in pair:
        end.close()


def received_in_pieces(connection: SocketConnection, piece: int, into: memoryview | None) -> bytes:
    frame = connection.receive(5.0, into, piece)
    got, unread = bytes(frame.payload), frame.unread
    while unread:
        count = min(unread, piece)
        got += bytes(connection.receive_more(count, 5.0, into))
        unread -= count
    return got


@pytest.mark.parametrize("piece", [1000, 65536, packet_bytes, 1 << 20])
@pytest.mark.parametrize("is_laid", [False, True])
@pytest.mark.parametrize(
    "size", [0, 1, frame_ahead_bytes, frame_ahead_bytes + 1, packet_bytes, packet_bytes + 1, 3_000_001]
)
def test_a_payload_of_any_size_arrives_whole(ends, size: int, is_laid: bool, piece: int) -> None:
    here, there = ends
    data = random.Random(size).randbytes(size)
    into = memoryview(bytearray(1 << 20)) if is_laid else None

    def send() -> None:
        here.send(Packet(0, b"s", True), data, 5.0)
        here.send(Done(), b"", 5.0, tag=9)

    sending = threading.Thread(target=send)
    sending.start()
    assert received_in_pieces(there, piece, into) == data
    assert there.receive(5.0)[::2] == (Done(), 9)
    sending.join()


def test_frames_that_came_together_come_out_one_by_one_without_waiting(ends) -> None:
    here, there = ends
    for tag in range(5):
        here.send(Packet(tag, b"", False), b"x" * 3000 * tag, 5.0)
    frames: list[Frame] = []
    while len(frames) < 5:
        frame = there.receive_now()
        assert frame is not None, "all have been sent, and fit"
        frames.append(Frame(frame.message, bytes(frame.payload)))
    assert [len(frame.payload) for frame in frames] == [0, 3000, 6000, 9000, 12000]
    assert there.receive_now() is None
    assert not there.has_bytes_ahead


def test_a_connection_that_is_meddled_with_ends(ends) -> None:
    here, there = ends
    os.write(here.fileno(), b"\0\0\0\1x" + b"y" * 16)
    with pytest.raises(BrokenSeal):
        there.receive(5.0)


def test_a_connection_that_ends_within_a_record_has_brought_nothing_of_it(ends) -> None:
    here, there = ends
    record = b"".join(Sealer(TO).seal(b"half of a frame" * 10_000))
    sending = threading.Thread(target=lambda: (os.write(here.fileno(), record[:-1]), here.shut_down()))
    sending.start()
    with pytest.raises(PeerUnreachable):
        there.receive(5.0)
    sending.join()
