"""What a datanode says to its coordinator, word by word over a real connection."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from support.play import registration

from peacefs.protocol.frames import Frame, FrameReader, encode
from peacefs.protocol.handshake import Identity, connecting
from peacefs.protocol.messages import Message
from peacefs.protocol.tokens import Signer

SIGNER = Signer(b"the secret of the test")


class Datanode:
    """A connection that says what a datanode says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = "dn-1") -> None:
        self._name = name
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader()

    async def receive(self) -> Frame:
        while (frame := self._frames.next()) is None:
            received = await self._reader.read(65536)
            assert received, "the coordinator has hung up"
            self._frames.take(received)
        return frame

    async def say_hello(self) -> None:
        talk = connecting(Identity("c", "datanode", self._name, SIGNER), b"n" * 16)
        message: Message = next(talk)
        with contextlib.suppress(StopIteration):
            while True:
                self.writer.write(encode(message))
                message = talk.send((await self.receive()).message)

    async def register(self, process: str = "") -> Message:
        """Says hello and registers; gives the answer to that."""
        await self.say_hello()
        self.writer.write(encode(msgspec.structs.replace(registration(self._name), process=process)))
        return (await self.receive()).message

    async def has_ended(self) -> bool:
        """Whether the coordinator hangs up."""
        try:
            return await asyncio.wait_for(self._reader.read(65536), 10) == b""
        except ConnectionError:
            return True
