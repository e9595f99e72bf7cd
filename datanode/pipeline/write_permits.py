"""Checks whether a chunk may be written here, and where in the chunk's pipeline this datanode is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from peacefs.client.transfer.next_hop import link_timeout_s
from peacefs.protocol.errors import (
    AccessDenied,
    BrokenSeal,
    ChunkError,
    GrantLapsed,
    PeacefsError,
    PeerError,
    StaleVersion,
)
from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import grant_clock_slack_s
from peacefs.protocol.messages import Hop, WriteChunk
from peacefs.protocol.tokens import ChunkWrite, Signer

# A hop always waits for acknowledgements for this fraction of its timeout, however long its own disk took.
acknowledgement_wait_min: Final = 0.1


class Place(NamedTuple):
    """This node's place in one chunk's pipeline."""

    upstream: NodeId | None
    #: The hops after this node.
    route: list[Hop]
    link_timeout_s: float


class WritePermits:
    """Checks the tokens of writers for one datanode. `wall_clock` returns seconds since 1970."""

    def __init__(
        self, signer: Signer, node: NodeId, wall_clock: Callable[[], float], hop_timeout_s: float
    ) -> None:
        self._signer = signer
        self._node = node
        self._wall_clock = wall_clock
        self._hop_timeout_s = hop_timeout_s

    def check(self, opening: WriteChunk) -> ChunkWrite:
        """Return the verified token. Raises AccessDenied, and GrantLapsed if it has expired.

        A short delay is allowed, because a grant used in time may reach the next hop a little late.
        """
        token = self._signer.verify_even_late(opening.token, ChunkWrite)
        if token.expires_s < self._wall_clock() - grant_clock_slack_s:
            raise GrantLapsed("the write token expired before the chunk was begun; ask for another")
        if (token.chunk, token.version) != (opening.chunk, opening.version):
            raise AccessDenied("the token is for another chunk")
        if self._node not in token.nodes:
            raise AccessDenied(f"the token is not for datanode {self._node}")
        return token

    def place(self, token: ChunkWrite) -> Place:
        """Return this node's place in the pipeline of a token that `check` has returned."""
        nodes = token.nodes
        position = nodes.index(self._node)
        return Place(
            nodes[position - 1] if position else None,
            token.pipeline[position + 1 :],
            link_timeout_s(position, len(nodes), self._hop_timeout_s),
        )

    def ascribe(self, fault: PeacefsError, place: Place) -> None:
        """Name the culprit of an error of this hop or an earlier one. Errors of later hops already name theirs."""
        if fault.culprit is not None:
            return
        if isinstance(fault, PeerError) and not isinstance(fault, BrokenSeal):
            fault.culprit = place.upstream
        elif isinstance(fault, ChunkError | BrokenSeal) and not isinstance(fault, StaleVersion):
            fault.culprit = self._node
