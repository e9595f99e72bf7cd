"""The writer of a lease says now and then that it is there, while it waits for its source as well."""

from __future__ import annotations

from peacefs.protocol.errors import PeerError, ServiceUnready
from peacefs.protocol.limits import lease_renewal_s
from peacefs.protocol.messages import Done, RenewLease
from peacefs.runtime import effects as fx


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
