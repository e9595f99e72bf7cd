"""Signed permits to write one chunk, or a copy of it, through a pipeline of datanodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.limits import grant_open_s
from peacefs.coordinator.scheduling.write_sets import InFlight
from peacefs.protocol.ids import ChunkId, Version
from peacefs.protocol.limits import write_token_lifetime_s
from peacefs.protocol.messages import Allocated, GrantedChunk, Hop
from peacefs.protocol.tokens import ChunkWrite, Signer


class ChunkPermits:
    """Signs permits for the core's decisions."""

    def __init__(
        self,
        core: CoordinatorCore,
        signer: Signer,
        monotonic: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._signer = signer
        self._monotonic = monotonic
        self._wall_clock = wall_clock

    def granted(self, grant: InFlight) -> GrantedChunk | None:
        """Sign a permit for a chunk that the scheduler has placed; None if a node of its pipeline is unknown."""
        hops = [hop for node in grant.nodes if (hop := self._core.cluster.hop(node)) is not None]
        if len(hops) != len(grant.nodes):
            return None
        use_by_s = self._wall_clock() + grant.granted_s + grant_open_s - self._monotonic()
        token = ChunkWrite(use_by_s, grant.chunk, grant.version, hops, grant.number)
        allocated = Allocated(grant.chunk, grant.version, hops, self._signer.sign(token))
        return GrantedChunk(grant.index, self._core.numbering.epoch, grant.number, allocated)

    def to_copy(self, chunk: ChunkId, version: Version, pipeline: Sequence[Hop]) -> str:
        """Sign a token to copy a chunk through these nodes, or to measure the path through them."""
        expires_s = self._wall_clock() + write_token_lifetime_s
        return self._signer.sign(ChunkWrite(expires_s, chunk, version, list(pipeline)))
