"""Limits on how much of a shared resource one client, or all clients together, may use.

The limit for one client is below the total, so a greedy client leaves something for the others. Pure.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

_NETWORK_BITS = 64
_ADDRESSES_REMEMBERED_MAX = 4096


@lru_cache(_ADDRESSES_REMEMBERED_MAX)
def client_of(host: str | None) -> str:
    """Return the client to which an address counts: an IPv4 address, or an IPv6 /64 network."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return ""
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _NETWORK_BITS), strict=False))


class Shares:
    """Counts what each client has taken and not given back. Clients without anything use no memory."""

    def __init__(self, all_max: int, each_max: int) -> None:
        self._all_max = all_max
        self._each_max = each_max
        self._taken: dict[str, int] = {}
        self.total = 0

    def of(self, client: str) -> int:
        return self._taken.get(client, 0)

    def take(self, client: str, count: int = 1) -> bool:
        """Take `count` unless the client's limit or the total is exceeded; return whether it was taken."""
        taken = self.of(client) + count
        if taken > self._each_max or self.total + count > self._all_max:
            return False
        self._taken[client] = taken
        self.total += count
        return True

    def give_back(self, client: str, count: int = 1) -> None:
        left = self._taken[client] - count
        assert left >= 0, "more is given back than was taken"
        self.total -= count
        if left:
            self._taken[client] = left
        else:
            del self._taken[client]
