"""Grants that may have ended without anybody's word: whom to ask about them, and when enough have denied. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import grant_ask_interval_s, grant_clock_slack_s, grant_open_s

from .write_sets import Ask, InFlight


class GrantDoubts:
    """Knows which datanodes are dead: they deny everything."""

    def __init__(self) -> None:
        self._dead: set[NodeId] = set()

    def died(self, node: NodeId) -> None:
        self._dead.add(node)

    def lives(self, node: NodeId) -> None:
        self._dead.discard(node)

    def is_denied(self, grant: InFlight) -> bool:
        """By every node of its pipeline."""
        return self._dead.union(grant.denied).issuperset(grant.nodes)

    def due(self, now_s: float, grants: Iterable[InFlight]) -> list[InFlight]:
        """Those to ask about now: they can be used no more, or not go on."""
        return [
            grant
            for grant in grants
            if (is_lapsed(now_s, grant) or self._is_broken(grant))
            and now_s - grant.asked_s >= grant_ask_interval_s
        ]

    def _is_broken(self, grant: InFlight) -> bool:
        """Whether its writing has begun and cannot go on, for nothing comes through the head any more."""
        head = grant.nodes[0]
        return grant.begun and (head in self._dead or head in grant.denied)

    def questions(self, now_s: float, grants: Iterable[InFlight]) -> list[Ask]:
        """To every node that lives, one for all of them."""
        asks: dict[NodeId, list[ChunkId]] = {}
        for grant in grants:
            grant.asked_s = now_s
            for node in grant.nodes:
                if node not in self._dead:
                    asks.setdefault(node, []).append(grant.chunk)
        return [Ask(node, tuple(chunks)) for node, chunks in asks.items()]


def is_lapsed(now_s: float, grant: InFlight) -> bool:
    """Whether nobody can begin to use it any more, wherever the clocks are."""
    return now_s - grant.granted_s > grant_open_s + 2 * grant_clock_slack_s
