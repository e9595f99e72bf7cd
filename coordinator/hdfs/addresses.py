"""The numeric addresses of datanodes, which HDFS clients get in addition to the host names."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Iterable
from typing import Final

# How long an address is kept before its name is resolved again.
address_kept_s: Final = 60.0
resolve_timeout_s: Final = 2.0

log = logging.getLogger("peacefs.coordinator")


class Addresses:
    """A cache of the addresses of host names. Call `look_up` before `of`."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}

    def of(self, host: str) -> str:
        """Return the address of a host, or the name itself if it is not known."""
        return self._known.get(host, (host, 0.0))[0]

    async def look_up(self, hosts: Iterable[str]) -> None:
        """Resolve names that are unknown or were resolved too long ago. Forget all other names."""
        wanted = set(hosts)
        for host in self._known.keys() - wanted:
            del self._known[host]
        now_s = asyncio.get_running_loop().time()
        for host in wanted:
            known = self._known.get(host)
            if known is None or now_s - known[1] > address_kept_s:
                self._known[host] = await self._resolved(host), now_s

    async def _resolved(self, host: str) -> str:
        if _is_numeric(host):
            return host
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(
                loop.getaddrinfo(host, None, type=socket.SOCK_STREAM), resolve_timeout_s
            )
        except (OSError, UnicodeError, TimeoutError):
            # UnicodeError: the name is none that the domain name system can have.
            log.warning("the address of the datanode host %s cannot be found: clients of HDFS get its name", host)
            return host
        return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
