"""Renews a writer's lease, even while the writer waits for its source."""

from __future__ import annotations

from peacefs.protocol.errors import PeerError, ServiceUnready
from peacefs.protocol.limits import lease_renewal_s
from peacefs.protocol.messages import Done, RenewLease
from peacefs.runtime import effects as fx


class LeaseRenewal:
    """Renews a lease regularly. (Calls that carry its token renew it too.) Belongs to one participant."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._renewed_s: float | None = None

    def keep(self, timeout_s: float) -> fx.Steps[None]:
        """Renew the lease if it is time. A later call retries an unreachable coordinator. Raises LeaseExpired."""
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
