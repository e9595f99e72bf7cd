"""A socket after the handshake, for programs that move its bytes by themselves, such as an event loop."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peacefs.protocol.checksums import Bytes


@dataclass(frozen=True)
class ProtectedStream:
    """The socket, and how its bytes are protected: by the seals of the handshake, or by TLS.

    `seal` takes a head and a payload, and returns what must be sent before anything else is sealed. `open` takes
    received bytes and returns those that are complete and verified. It raises a PeerError for any others.
    """

    sock: socket.socket
    seal: Callable[[Bytes, Bytes], Sequence[Bytes]]
    open: Callable[[bytes], Bytes]
