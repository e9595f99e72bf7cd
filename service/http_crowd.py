"""All connections of one HTTP server: whom to close when there are too many, or when they hold too much memory.

Connections that ask nothing go first, longest first; a client's own before those of others. What waits for more
of a head, and what was sent and is not taken, has a bound over all connections together.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from math import inf
from typing import Final, Protocol

from peacefs.protocol.limits import MIB
from peacefs.service.limits import http_connections_max

http_crowd_log_pause_s: Final = 5.0
# One client's share, a client being an address or an IPv6 network of 64 bits: connections to one service, requests
# in flight at the coordinator, uploads and downloads at a gateway, and the memory of its uploads there. The rest
# is left to others.
http_connections_per_client_max: Final = 2048
# The memory for unfinished heads and unread answers over all connections of one service. Over it, the connection
# that has been so for longest is closed.
http_heads_bytes_max: Final = 32 * MIB
http_unsent_bytes_max: Final = 256 * MIB


log = logging.getLogger("peacefs.http")


class CrowdMember(Hashable, Protocol):
    """A connection."""

    client_address: str

    def abort(self) -> None:
        """Close it at once."""


class HttpCrowd:
    """Belongs to one event loop; does no I/O but what it asks of members."""

    def __init__(self) -> None:
        #: Connections without a whole request, longest first, with what they hold of a head.
        self._waiting: dict[CrowdMember, int] = {}
        self._heads_bytes = 0
        #: Those that do not take what they were sent, longest first, with how much that is.
        self._unsent: dict[CrowdMember, int] = {}
        self._unsent_bytes = 0
        self._of_client: dict[str, dict[CrowdMember, None]] = {}
        self._connections = 0
        self._logged_s = -inf

    # -- connections ---------------------------------------------------------------------------------

    def join(self, member: CrowdMember, now_s: float) -> bool:
        """Let a new connection in, closing another where there are too many; False where it must go itself."""
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
        """A connection is closed, or serves something else from now on."""
        self.answering(member)
        self.taken(member)
        of_client = self._of_client.get(member.client_address)
        if of_client is not None and member in of_client:
            del of_client[member]
            self._connections -= 1
            if not of_client:
                del self._of_client[member.client_address]

    def _close_one_of(self, members: dict[CrowdMember, None] | dict[CrowdMember, int]) -> bool:
        """Close one of the connections that have no request."""
        longest = next((member for member in members if member in self._waiting), None)
        if longest is None:
            return False
        self.leave(longest)
        longest.abort()
        return True

    def _say(self, now_s: float, what: str) -> None:
        if now_s - self._logged_s >= http_crowd_log_pause_s:
            self._logged_s = now_s
            log.warning("%s, which is the limit: closing those that ask nothing, or else new ones", what)

    # -- what they hold ------------------------------------------------------------------------------

    def waiting(self, member: CrowdMember, head_bytes: int = 0) -> None:
        """A connection has no whole request, and has sent so much of a head."""
        self._heads_bytes += head_bytes - self._waiting.get(member, 0)
        self._waiting[member] = head_bytes
        while self._heads_bytes > http_heads_bytes_max:
            longest = next(each for each, held in self._waiting.items() if held)
            self.leave(longest)
            longest.abort()

    def answering(self, member: CrowdMember) -> None:
        """A connection is being answered, as far as the crowd is concerned."""
        self._heads_bytes -= self._waiting.pop(member, 0)

    def not_taking(self, member: CrowdMember, unsent_bytes: int) -> None:
        """A connection does not take what it was sent. Over the bound, the one goes that has not for longest."""
        self.taken(member)
        self._unsent[member] = unsent_bytes
        self._unsent_bytes += unsent_bytes
        while self._unsent_bytes > http_unsent_bytes_max and len(self._unsent) > 1:
            longest = next(iter(self._unsent))
            self.leave(longest)
            longest.abort()

    def taken(self, member: CrowdMember) -> None:
        """A connection has taken what it was sent."""
        self._unsent_bytes -= self._unsent.pop(member, 0)
