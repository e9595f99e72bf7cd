"""The writer of a lease says now and then that it is there, while it waits for its source as well."""

from __future__ import annotations

from peacefs.protocol.errors import PeerError, ServiceUnready
from peacefs.protocol.limits import lease_renewal_s, source_silence_s
from peacefs.protocol.messages import Done, RenewLease
from peacefs.protocol.runtime import effects as fx

from .byte_stream import ByteStream
from .chunk_buffer import ChunkBuffer, OutgoingPacket


class LeaseRenewal:
    """Belongs to one participant. Any call that bears the lease's token renews it; this makes those between."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._renewed_s: float | None = None

    def keep(self, timeout_s: float) -> fx.Steps[None]:
        """Renews the lease when it is time; one that is away is asked again later. Raises LeaseExpired."""
        now_s = yield from fx.now()
        if self._renewed_s is None:
            self._renewed_s = now_s
        if now_s - self._renewed_s < lease_renewal_s:
            return
        try:
            yield from fx.call(RenewLease(self._token), Done, timeout_s=timeout_s)
        except (PeerError, ServiceUnready):
            return
        self._renewed_s = now_s

    def until_readable(self, source: ByteStream) -> fx.Steps[None]:
        """Keeps the lease while the source has nothing to give. Raises what `keep` does, or that it is silent."""
        for _ in range(int(source_silence_s / lease_renewal_s)):
            yield from self.keep(lease_renewal_s)
            if (yield from source.readable(timeout_s=lease_renewal_s)):
                return
        raise source.silent()


class LeasedBuffer(ChunkBuffer):
    """A chunk of a file that is being extended: who sends its packets keeps the lease."""

    def __init__(self, source: ByteStream, capacity_bytes: int, renewal: LeaseRenewal) -> None:
        super().__init__(source, capacity_bytes)
        self._renewal = renewal

    def packet(self, index: int, *, patience_s: float) -> fx.Steps[OutgoingPacket | None]:
        yield from self._renewal.keep(patience_s)
        return (yield from super().packet(index, patience_s=patience_s))
