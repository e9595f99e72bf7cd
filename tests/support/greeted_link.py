"""A client's link to the coordinator without a socket, after its handshake."""

from __future__ import annotations

import asyncio
from typing import cast

from support.spoken_link import told_by

from peacefs.coordinator.rpc.client_session import ClientLink, ClientLinks
from peacefs.protocol.frames import Frame, FrameReader, encode
from peacefs.protocol.handshake import Identity, connecting
from peacefs.protocol.messages import Target


class Writes:
    """A transport that records a link's writes, in place of a socket."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_aborted = False

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def frames(self) -> list[Frame]:
        """Return the frames of `pieces`."""
        return FrameReader().feed(b"".join(self.pieces))


def greeted_link(links: ClientLinks) -> tuple[ClientLink, Writes]:
    """Return a new link, and the record of its writes from now on. Call it on the event loop."""
    writes, link = Writes(), links.link()
    link.connection_made(cast(asyncio.Transport, writes))
    target = Target("coordinator", "coordinator", "coordinator:1", "")
    steps = connecting(Identity("", "client", "test", None), b"n" * 16, target=target)
    link.data_received(encode(next(steps)))
    link.data_received(encode(told_by(steps, writes.frames()[0].message).last_word))
    writes.pieces.clear()
    return link, writes
