"""How a process proves that it belongs to a query: the services' handshake, with the run's token as the secret."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from peacefs.dataflow.limits import dataflow_busy_s_max
from peacefs.protocol.errors import PeerTimeout
from peacefs.protocol.handshake import Identity, Peer
from peacefs.protocol.tokens import Signer
from peacefs.runtime.connection_handshakes import accept_connection, open_connection
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.protected_stream import ProtectedStream
from peacefs.runtime.tls import TlsFiles, TlsIdentity

#: The role of every process of a query, and the role of a connection that carries only beats.
NODE: Final = "node"
BEATS: Final = "beats"
#: The only address on which processes of a query listen.
LISTENS_ON: Final = "127.0.0.1"


@dataclass(frozen=True)
class Member:
    """A process of a query: its name, the token of the run, and its certificate if connections use TLS."""

    name: str
    token: str
    tls: TlsFiles | None = None


class Membership:
    """Makes and accepts the connections of one process of a query. Thread-safe; all calls block.

    A handshake shows the token to nobody. The connector learns that the acceptor is the process that it means. A
    stranger gets no answer at all.
    """

    def __init__(self, member: Member) -> None:
        """Load the TLS files. Raises StartupError if they are unusable."""
        self._me = Identity("", NODE, member.name, Signer(member.token.encode()), admits=(NODE, BEATS))
        self._tls = None if member.tls is None else TlsIdentity(member.tls, LISTENS_ON)

    def dial(self, peer: str, address: str, wanted: Callable[[], bool]) -> ProtectedStream:
        """Connect to a peer. While it is too busy to answer and the connection is `wanted`, try again.

        Raises PeerUnreachable, PeerTimeout or PeerRefused.
        """
        begun_s = time.monotonic()
        while True:
            try:
                return self._dial(peer, address, self._me)
            except PeerTimeout:
                if not wanted() or time.monotonic() >= begun_s + dataflow_busy_s_max:
                    raise

    def dial_for_beats(self, peer: str, address: str) -> ProtectedStream:
        """Connect to a peer that is to hear beats. Raises as `dial` does."""
        return self._dial(peer, address, replace(self._me, role=BEATS))

    def _dial(self, peer: str, address: str, me: Identity) -> ProtectedStream:
        host, _, port = address.rpartition(":")
        return open_connection((host, int(port)), peer, me, self._tls, role=NODE)[0].hand_over()

    def accept(self, connection: SocketConnection) -> Peer:
        """Complete the handshake of an accepted connection. Raises a PeerError for strangers."""
        if self._tls is not None:
            self._tls.look()
        # Clients, who would not be asked for a proof, are not admitted.
        return accept_connection(connection, self._me, tls=self._tls, is_discreet=True)
