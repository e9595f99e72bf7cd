"""Chooses which connections of an HTTP server to close when there are too many or they hold too much memory.

Connections without a complete request are closed first, the oldest first. If one client has too many connections,
one of its own is closed. Unfinished heads and unread answers each have a memory limit over all connections.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from math import inf
from typing import Final, Protocol

from peacefs.protocol.limits import MIB
from peacefs.service.limits import http_connections_max

http_crowd_log_pause_s: Final = 5.0
# Maximum connections of one client: an IPv4 address or an IPv6 /64 network.
http_connections_per_client_max: Final = 2048
# Memory for unfinished heads and for unread answers, over all connections of one service. Above it, the connection
# that has been in that state for longest is closed.
http_heads_bytes_max: Final = 32 * MIB
http_unsent_bytes_max: Final = 256 * MIB


log = logging.getLogger("peacefs.http")


class CrowdMember(Hashable, Protocol):
    client_address: str

    def abort(self) -> None:
        """Close the connection at once."""


class HttpCrowd:
    """The connections of one HTTP server, which report their changes of state here.

    Not thread-safe: belongs to the event loop. Its only I/O is `abort` of its members.
    """

    def __init__(self) -> None:
        #: Connections without a complete request, oldest first, with the bytes of the head received so far.
        self._waiting: dict[CrowdMember, int] = {}
        self._heads_bytes = 0
        #: Connections whose client does not read, oldest first, with the number of unsent bytes.
        self._unsent: dict[CrowdMember, int] = {}
        self._unsent_bytes = 0
        self._of_client: dict[str, dict[CrowdMember, None]] = {}
        self._connections = 0
        self._logged_s = -inf

    # -- connections ---------------------------------------------------------------------------------

    def join(self, member: CrowdMember, now_s: float) -> bool:
        """Admit a connection, closing another one if there are too many; False if it is not admitted."""
        of_client = self._of_client.setdefault(member.client_address, {})
        if len(of_client) >= http_connections_per_client_max:
            self._say(now_s, f"one client, {member.client_address}, has {len(of_client)} HTTP connections open")
            if not self._close_one_of(of_client):
                return False
        elif self._connections >= http_connections_max:
            self._say(now_s, f"{http_connections_max} HTTP connections are open")
            if not self._close_one_of(self._waiting):
                return False
        self._of_client.setdefault(member.client_address, {})[member] = None
        self._connections += 1
        return True

    def leave(self, member: CrowdMember) -> None:
        """Forget a connection that was closed, or that no longer serves HTTP."""
        self.answering(member)
        self.taken(member)
        of_client = self._of_client.get(member.client_address)
        if of_client is not None and member in of_client:
            del of_client[member]
            self._connections -= 1
            if not of_client:
                del self._of_client[member.client_address]

    def _close_one_of(self, members: dict[CrowdMember, None] | dict[CrowdMember, int]) -> bool:
        """Close the oldest of these connections that has no complete request; return whether there was one."""
        longest = next((member for member in members if member in self._waiting), None)
        if longest is None:
            return False
        self.leave(longest)
        longest.abort()
        return True

    def _say(self, now_s: float, what: str) -> None:
        if now_s - self._logged_s >= http_crowd_log_pause_s:
            self._logged_s = now_s
            log.warning("%s, which is the limit: closing idle connections, or else new ones", what)

    # -- what they hold ------------------------------------------------------------------------------

    def waiting(self, member: CrowdMember, head_bytes: int = 0) -> None:
        """Note that a connection has no complete request, and `head_bytes` of an unfinished head."""
        self._heads_bytes += head_bytes - self._waiting.get(member, 0)
        self._waiting[member] = head_bytes
        while self._heads_bytes > http_heads_bytes_max:
            longest = next(each for each, held in self._waiting.items() if held)
            self.leave(longest)
            longest.abort()

    def answering(self, member: CrowdMember) -> None:
        """Note that a connection has a complete request."""
        self._heads_bytes -= self._waiting.pop(member, 0)

    def not_taking(self, member: CrowdMember, unsent_bytes: int) -> None:
        """Note that a client does not read its answer. Above the limit, close the oldest of these connections."""
        self.taken(member)
        self._unsent[member] = unsent_bytes
        self._unsent_bytes += unsent_bytes
        while self._unsent_bytes > http_unsent_bytes_max and len(self._unsent) > 1:
            longest = next(iter(self._unsent))
            self.leave(longest)
            longest.abort()

    def taken(self, member: CrowdMember) -> None:
        """Note that a client has read its answer."""
        self._unsent_bytes -= self._unsent.pop(member, 0)
