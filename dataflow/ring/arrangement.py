"""The first arrangement of a ring: tokens, neighbours in different racks, and checks of invalid rings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from peacefs.dataflow.model.numbers import is_number
from peacefs.dataflow.recovery.ring_settings import RingArrangement
from peacefs.protocol.errors import InvalidQuery

from .tokens import RING
from .view import MembershipPhase, RingMember


def arrange(names: Sequence[str], r: int, arrangement: RingArrangement | None = None) -> list[RingMember]:
    """Return the members of a new ring. Raises InvalidQuery, with a one-line message, for an invalid ring.

    The last `spares` of the names stay off the ring. Unless tokens are given, any r + 1 neighbours are in
    different racks, if the racks allow it (SMR VII, Figure 13).
    """
    arrangement = arrangement or RingArrangement()
    rack_of, tokens, spares = arrangement.rack_of, arrangement.tokens, arrangement.spares
    for what, given in (("rack_of", rack_of), ("tokens", tokens or {})):
        unknown = sorted(map(str, given.keys() - set(names)))
        if unknown:
            raise InvalidQuery(
                f"RingArrangement({what}=...) names {unknown[0]!r}, and the nodes are {names[0]!r} to "
                f"{names[-1]!r}"
            )
    racks = {name: rack_of.get(name, "") for name in names}
    ring = list(names[: len(names) - spares])
    if r < 0:
        raise InvalidQuery(f"PeerRing(r={r}): r is the number of neighbours that keep a copy, 0 or more")
    if len(ring) < r + 1:
        raise InvalidQuery(
            f"PeerRing(r={r}) keeps each tuple on {r + 1} nodes, and the ring has {len(ring)}: start {r + 1} "
            f"nodes or more, or choose r={max(len(ring) - 1, 0)}"
        )
    if len(set(names)) != len(names):
        raise InvalidQuery("two nodes of a ring have the same name: give each its own")
    if tokens is None:
        ring = by_racks(ring, racks)
        tokens = {name: RING * at // len(ring) for at, name in enumerate(ring)}
    _check_tokens(ring, tokens)
    return [
        RingMember(name, racks[name], phase=MembershipPhase.LIVE, token=tokens[name], version=1)
        if name in ring
        else RingMember(name, racks[name], version=1)
        for name in names
    ]


def by_racks(names: Sequence[str], rack_of: Mapping[str, str]) -> list[str]:
    """Return the names in an order in which nodes of the same rack are as far apart as possible."""
    racks: dict[str, list[str]] = defaultdict(list)
    for name in names:
        racks[rack_of.get(name, "")].append(name)
    # Each rack's nodes are spread evenly over the ring: the k-th of m is at (k + 1/2) / m.
    largest = sorted(racks.items(), key=lambda item: (-len(item[1]), item[0]))
    placed = [
        ((at + 0.5) / len(members), order, name)
        for order, (_, members) in enumerate(largest)
        for at, name in enumerate(members)
    ]
    return [name for _, _, name in sorted(placed)]


def shared_racks(ring: Sequence[str], rack_of: Mapping[str, str], r: int) -> list[tuple[str, str]]:
    """Return the pairs of nodes in the same rack in which one keeps copies of the other's state."""
    found = []
    for at, name in enumerate(ring):
        for k in range(1, min(r, len(ring) - 1) + 1):
            other = ring[(at + k) % len(ring)]
            if rack_of.get(name, "") and rack_of.get(name) == rack_of.get(other):
                found.append((name, other))
    return found


def _check_tokens(ring: Sequence[str], tokens: Mapping[str, int]) -> None:
    missing = [name for name in ring if name not in tokens]
    if missing:
        raise InvalidQuery(f"node {missing[0]!r} has no token: give one to each node of the ring, or to none")
    holder: dict[int, str] = {}
    for name in ring:
        token = tokens[name]
        if not is_number(token, whole=True) or not 0 <= token < RING:
            raise InvalidQuery(
                f"token {token!r} of node {name!r} is not on the ring: it must be from 0 to {RING - 1}"
            )
        if token in holder:
            raise InvalidQuery(
                f"nodes {holder[token]!r} and {name!r} have the same token, {token}: one would have no keys; give "
                "each its own, or leave tokens out"
            )
        holder[token] = name
