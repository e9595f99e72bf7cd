"""The greeting of a dataflow's connection, and what happens to connections without a greeting."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import time
from typing import Any

import pytest

from peacefs.dataflow.hosts import links as links_module
from peacefs.dataflow.hosts.greeting import greet, greeting_bytes_max, read_greeting
from peacefs.dataflow.hosts.links import Links
from peacefs.protocol.errors import ProtocolViolation

_TOKEN, _ADDRESS = "a" * 32, "127.0.0.1:4000"


def expected(name: bytes, token: str, address: str, beats: int) -> bytes:
    """Return the greeting that the docstring of `greeting.py` describes."""
    said = b"peacefs dataflow greeting\0\x01" + bytes((beats, 0)) + address.encode() + b"\0" + name
    return b"dg\x01" + bytes((beats, len(name))) + hmac.new(token.encode(), said, hashlib.sha256).digest() + name


@pytest.mark.parametrize("beats", [False, True])
def test_greeting_arrives_in_any_pieces(beats: bool) -> None:
    data = greet("node-1", _TOKEN, _ADDRESS, beats=beats)
    assert data == expected(b"node-1", _TOKEN, _ADDRESS, int(beats))
    for end in range(len(data)):
        assert read_greeting(data[:end], _TOKEN, _ADDRESS) is None
    met = read_greeting(data + b"messages", _TOKEN, _ADDRESS)
    assert met is not None
    assert (met.node, met.beats, met.length) == ("node-1", beats, len(data))


def test_greeting_opens_the_address_that_was_dialled_with_the_token_alone() -> None:
    data = greet("node-1", _TOKEN, _ADDRESS)
    for token, address in ((_TOKEN, "127.0.0.1:4001"), ("b" * 32, _ADDRESS), ("\u00e9" * 32, _ADDRESS), ("", "")):
        with pytest.raises(ProtocolViolation, match="not of a node of this query"):
            read_greeting(data, token, address)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        try:
            assert read_greeting(changed, _TOKEN, _ADDRESS) is None, place
        except ProtocolViolation:
            continue
        assert place == 4, "only a longer name may still be awaited"
    assert len(greet("n" * 255, _TOKEN, _ADDRESS)) == greeting_bytes_max == 292


class LineLinks(Links):
    """Links whose messages are lines."""

    def new_reader(self) -> Any:
        return Lines()


class Listening:
    """Links that record what they receive."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.broken: list[str] = []
        self.links = LineLinks(
            "edge",
            _TOKEN,
            {},
            lambda peer, message: self.received.append((peer, message)),
            self.broken.append,
        )


class Lines:
    """Messages that are lines."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[bytes]:
        *whole, self._data = (self._data + data).split(b"\n")
        return whole


async def _until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def _dialled(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_greeting_that_came_while_a_node_was_busy_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The greeting counts however long the loop was busy. Connections without a greeting are closed afterwards."""
    monkeypatch.setattr(links_module, "dataflow_greeting_s", 0.2)

    async def play() -> None:
        listening = Listening()
        address = await listening.links.listen()
        silent, honest = _dialled(address), _dialled(address)
        with silent, honest:
            await _until(lambda: len(listening.links._strangers) == 2)
            honest.sendall(greet("node-1", _TOKEN, address) + b"one\ntwo\nth")
            time.sleep(0.5)  # noqa: ASYNC251 - busy with a batch
            await _until(lambda: len(listening.received) == 2)
            assert listening.received == [("node-1", b"one"), ("node-1", b"two")]
            assert await asyncio.to_thread(silent.recv, 1) == b"", "the silent one is hung up on"
            honest.sendall(b"ree\n")
            await _until(lambda: len(listening.received) == 3)
            assert listening.broken == []
        await _until(lambda: listening.broken == ["node-1"])
        await listening.links.close()

    asyncio.run(play())


def test_crowd_of_strangers_leaves_room_for_who_greets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "dataflow_strangers_max", 8)

    async def play() -> None:
        listening = Listening()
        address = await listening.links.listen()
        crowd = [_dialled(address) for _ in range(20)]
        await _until(lambda: len(listening.links._strangers) == 8)
        with _dialled(address) as honest:
            honest.sendall(greet("node-1", _TOKEN, address) + b"one\n")
            await _until(lambda: listening.received == [("node-1", b"one")])
        for stranger in crowd:
            stranger.close()
        await _until(lambda: listening.broken == ["node-1"])
        await listening.links.close()

    asyncio.run(play())
