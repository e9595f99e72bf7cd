"""Talk to a coordinator as a datanode does, word by word over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import msgspec
from support.play import registration

from peacefs.protocol.credentials import Credential
from peacefs.protocol.frames import Frame, FrameReader, encode
from peacefs.protocol.handshake import Identity, Peer, connecting
from peacefs.protocol.messages import Message, Target, Welcome
from peacefs.protocol.seals import Opener, Sealer
from peacefs.protocol.tokens import Signer

SIGNER = Signer(b"the secret of the test")


def told_by(talk: Generator[Message, Message, Peer], answer: Message) -> Peer:
    """Return what one side of a handshake derives from the other's answer."""
    try:
        talk.send(answer)
    except StopIteration as end:
        peer: Peer = end.value
        return peer
    raise AssertionError("it asks once more")


class Datanode:
    """A connection that behaves as a datanode."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        name: str = "dn-1",
        credential: Credential | None = None,
    ) -> None:
        self._name = name
        self.credential = credential or Credential.make()
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader()
        self._sealer: Sealer | None = None

    async def receive(self) -> Frame:
        while (frame := self._frames.next()) is None:
            received = await self._reader.read(65536)
            assert received, "the coordinator has hung up"
            self._frames.take(received)
        return frame

    def say(self, message: Message, tag: int = 0) -> None:
        self.writer.write(self.sealed(message, tag))

    def sealed(self, message: Message, tag: int = 0) -> bytes:
        """Return the next bytes to send, encrypted as agreed in the handshake."""
        frame = encode(message, tag=tag)
        return frame if self._sealer is None else b"".join(self._sealer.seal(frame))

    async def shake_hands(self) -> None:
        host, port = self.writer.get_extra_info("peername")
        target = Target("coordinator", "coordinator", "coordinator:1", f"{host}:{port}")
        talk = connecting(Identity("c", "datanode", self._name, SIGNER), b"n" * 16, target=target)
        self.say(next(talk))
        peer = told_by(talk, (await self.receive()).message)
        self.say(peer.last_word)
        self._transcript = peer.transcript
        assert peer.frame_keys is not None
        self._sealer, self._frames.opener = Sealer(peer.frame_keys.sending), Opener(peer.frame_keys.receiving)
        assert isinstance((await self.receive()).message, Welcome)

    async def register(self, process: str = "") -> Message:
        """Say hello and register; return the answer."""
        await self.shake_hands()
        proof = self.credential.sign_registration(self._name, self._transcript)
        known = {"process": process, "public_key": self.credential.public_key, "proof": proof}
        self.say(msgspec.structs.replace(registration(self._name), **known))
        return (await self.receive()).message

    async def has_ended(self) -> bool:
        """Return whether the coordinator closes the connection."""
        try:
            return await asyncio.wait_for(self._reader.read(65536), 10) == b""
        except ConnectionError:
            return True
