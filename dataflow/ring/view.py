"""A node's view of the ring: its members, who owns which interval, and who holds what.

Views are merged member by member: the higher version wins, and a member that is gone stays gone. So the order and
the number of news messages do not matter, and no agreement protocol is needed. A member that is gone keeps its
place. Its interval belongs to the next live member clockwise, which is the neighbour that has its state and tuples
(SMR VII). A place is given up when this heir moves past it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Final

from .tokens import RING, Interval, distance, halfway


class MembershipPhase(IntEnum):
    #: It runs, but has no token.
    SPARE = 0
    #: It receives the state and tuples of its future interval.
    JOINING = 1
    LIVE = 2
    #: Others receive the state and tuples of its interval.
    LEAVING = 3


_ON_RING: Final = (MembershipPhase.LIVE, MembershipPhase.LEAVING)


def _changes(phase: MembershipPhase, moves_to: int | None) -> bool:
    return phase in (MembershipPhase.JOINING, MembershipPhase.LEAVING) or moves_to is not None


@dataclass(frozen=True, slots=True)
class RingMember:
    name: str
    rack: str = ""
    address: str = ""
    phase: MembershipPhase = MembershipPhase.SPARE
    #: None for a spare, and for a member that is gone once another has moved past it.
    token: int | None = None
    #: The token that it will have once all holders of its new interval have what they need.
    moves_to: int | None = None
    #: Raised by the member with each change of the fields above. If it is gone, its heir raises it.
    version: int = 0
    #: It has died or left. This is final, whatever it sends later.
    gone: bool = False

    def merged(self, other: RingMember) -> RingMember:
        newer = max(self, other, key=lambda each: (each.version, each.token is not None, each.token or 0))
        return replace(newer, gone=self.gone or other.gone)

    @property
    def on_ring(self) -> bool:
        return self.token is not None and self.phase in _ON_RING

    @property
    def in_transition(self) -> bool:
        return not self.gone and _changes(self.phase, self.moves_to)


@dataclass(frozen=True, slots=True)
class Arc:
    """The part of the ring between two neighbouring places, and its holders: the owner first, then r others."""

    interval: Interval
    #: The present holders, and the holders once all changes under way are done.
    now: tuple[str, ...]
    next: tuple[str, ...]
    #: The holders if only some of the changes are done, and the others are cancelled.
    perhaps: tuple[str, ...] = ()

    @property
    def owner(self) -> str | None:
        return self.now[0] if self.now else None

    @property
    def holders(self) -> tuple[str, ...]:
        """All nodes that get its tuples and checkpoints. A node that is ready for a change remains included."""
        if self.now == self.next and not self.perhaps:
            return self.now
        return tuple(dict.fromkeys(self.now + self.next + self.perhaps))


class RingView:
    """What one node, or the edge, knows of the ring: its members, and therefore who owns which interval.

    Views that have the same news of all members agree, whatever the order of the news. A member that is gone stays
    gone. `revision` rises with each change. `NodeContext` has one for the cores of a node, and `EdgeOfRing` shares
    one with its mappers.
    """

    def __init__(self, r: int, members: Iterable[RingMember] = ()) -> None:
        self.r = r
        self._members: dict[str, RingMember] = {}
        #: Raised with each change.
        self.revision = 0
        self._changed: dict[str, tuple[int, str]] = {}
        self._arcs: _TokenTable | None = None
        self._ring: list[str] | None = None
        self._at: dict[str, int] = {}
        self._joining: list[RingMember] | None = None
        self.merge(members)

    @property
    def members(self) -> Mapping[str, RingMember]:
        return self._members

    def merge(self, members: Iterable[RingMember], source: str = "") -> bool:
        """Merge news of members from `source`. Return True if anything was new."""
        changed = []
        for member in members:
            known = self._members.get(member.name)
            merged = member if known is None else known.merged(member)
            if merged != known:
                changed.append(merged)
        if changed:
            self.revision += 1
            self._arcs = self._ring = self._joining = None
            for member in changed:
                self._members[member.name] = member
                self._changed[member.name] = (self.revision, source)
        return bool(changed)

    def since(self, revision: int, peer: str) -> tuple[RingMember, ...]:
        """Return the members that changed after a revision, except news that came from the peer itself."""
        if revision >= self.revision:
            return ()
        return tuple(
            self._members[name]
            for name, (changed, source) in self._changed.items()
            if changed > revision and source != peer
        )

    # -- members -----------------------------------------------------------------------------------------

    def is_gone(self, name: str) -> bool:
        member = self._members.get(name)
        return member is not None and member.gone

    @property
    def joining(self) -> list[RingMember]:
        """The members that are joining."""
        if self._joining is None:
            members = self._members.values()
            self._joining = [each for each in members if each.phase is MembershipPhase.JOINING and not each.gone]
        return self._joining

    @property
    def spares(self) -> list[RingMember]:
        return [each for each in self._members.values() if each.phase is MembershipPhase.SPARE and not each.gone]

    @property
    def ring(self) -> list[str]:
        """The members on the ring that are not gone, clockwise."""
        if self._ring is None:
            entries = sorted(
                (each.token or 0, each.name) for each in self._members.values() if each.on_ring and not each.gone
            )
            self._ring = [name for _, name in entries]
            self._at = {name: at for at, name in enumerate(self._ring)}
        return self._ring

    def neighbours_after(self, name: str, count: int) -> list[str]:
        """Return up to `count` live members clockwise of one, nearest first."""
        return self._neighbours(name, count, 1)

    def neighbours_before(self, name: str, count: int) -> list[str]:
        """Return up to `count` live members counter-clockwise of one, nearest first."""
        return self._neighbours(name, count, -1)

    def _neighbours(self, name: str, count: int, step: int) -> list[str]:
        ring = self.ring
        member = self._members.get(name)
        if member is None or not ring:
            return []
        at = self._at.get(name)
        if at is not None:
            return [ring[(at + step * k) % len(ring)] for k in range(1, min(count, len(ring) - 1) + 1)]
        if member.token is None:
            return []
        tokens = [self._members[each].token or 0 for each in ring]
        at = bisect_left(tokens, member.token)
        first = at if step > 0 else at - 1
        return [ring[(first + step * k) % len(ring)] for k in range(min(count, len(ring)))]

    # -- intervals ---------------------------------------------------------------------------------------

    @property
    def arcs(self) -> Sequence[Arc]:
        """All arcs, in the order of their places."""
        return self._places.arcs

    def arcs_of(self, name: str) -> Sequence[Arc]:
        """Return the arcs that a member holds, now or after the changes under way."""
        return self._places.held_by.get(name, ())

    def arc_at(self, place: int) -> Arc:
        """Return the arc that contains a place."""
        return self._places.arcs[bisect_right(self._places.lows, place) - 1]

    def arcs_within(self, interval: Interval) -> Sequence[Arc]:
        """Return the arcs that begin in an interval."""
        lows = self._places.lows
        return self._places.arcs[bisect_left(lows, interval.low) : bisect_left(lows, interval.high)]

    def places_within(self, interval: Interval) -> Sequence[int]:
        """Return the places inside an interval at which arcs begin."""
        lows = self._places.lows
        return lows[bisect_right(lows, interval.low) : bisect_left(lows, interval.high)]

    @property
    def _places(self) -> _TokenTable:
        if self._arcs is None:
            # Only the fields that affect places, so that views can share a table.
            placed = sorted(
                (each.token, each.name, each.phase, each.moves_to, each.gone)
                for each in self._members.values()
                if each.token is not None
            )
            self._arcs = _table(tuple(placed), self.r)
        return self._arcs

    def begin_of(self, name: str) -> int:
        """Return where a live member's interval begins: at its token, or earlier if members before it are gone."""
        begin = self._members[name].token
        assert begin is not None
        entries = sorted(
            (each.token, each.name, each.gone)
            for each in self._members.values()
            if each.on_ring and each.token is not None
        )
        at = entries.index((begin, name, self._members[name].gone))
        for k in range(1, len(entries)):
            token, _, gone = entries[at - k]
            if not gone:
                break
            begin = token
        return begin

    def middle_of(self, name: str) -> int | None:
        """Return the middle of the arc at a live member's token; None if the member is not on the ring."""
        member = self._members.get(name)
        if member is None or not member.on_ring or member.gone or member.token is None:
            return None
        ends = [each.token for each in self._members.values() if each.token is not None and each.on_ring]
        return halfway(member.token, min(ends, key=lambda token: distance(member.token or 0, token) or RING))

    def share_of(self, name: str) -> int:
        """Return how much of the ring a live member owns."""
        return sum(arc.interval.high - arc.interval.low for arc in self.arcs_of(name) if arc.owner == name)

    def passed(self, name: str, token: int) -> list[RingMember]:
        """Return the members that are gone and whose places a member passes when it moves to a token."""
        own = self._members[name].token
        assert own is not None
        return [
            each
            for each in self._members.values()
            if each.gone
            and each.on_ring
            and each.token is not None
            and 0 < distance(token, each.token) < distance(token, own)
        ]


@dataclass(frozen=True)
class _TokenTable:
    """All arcs of a ring, and the arcs of each holder. Equal views share it."""

    arcs: tuple[Arc, ...]
    lows: tuple[int, ...]
    held_by: Mapping[str, tuple[Arc, ...]]


#: Token, name, phase, the token that it moves to, and whether it is gone.
_Placed = tuple[int, str, MembershipPhase, int | None, bool]


@lru_cache(maxsize=128)
def _table(members: tuple[_Placed, ...], r: int) -> _TokenTable:
    # In the order of places, so that holders have the same order on all nodes.
    changing = [name for _, name, phase, moves_to, gone in members if not gone and _changes(phase, moves_to)]
    places = {0}
    for token, _, phase, moves_to, gone in members:
        if phase in _ON_RING or (phase is MembershipPhase.JOINING and not gone):
            places.add(token)
        if moves_to is not None:
            places.add(moves_to)
    every = frozenset(changing)
    now, following = _Places(_after(members, frozenset()), r), _Places(_after(members, every), r)
    # These are all outcomes of up to three nearby changes. Changes farther away have no effect at the same place.
    some = [one for name in changing for one in ({name}, every - {name})] if len(changing) > 1 else []
    partly = [_Places(_after(members, done), r) for done in some]
    ends = sorted(places)
    arcs = []
    held_by: dict[str, list[Arc]] = {}
    for low, high in zip(ends, [*ends[1:], RING], strict=True):
        holders = now.holders(low)
        perhaps = tuple(dict.fromkeys(name for each in partly for name in each.holders(low)))
        arcs.append(Arc(Interval(low, high), holders, following.holders(low) if changing else holders, perhaps))
        for name in arcs[-1].holders:
            held_by.setdefault(name, []).append(arcs[-1])
    return _TokenTable(tuple(arcs), tuple(ends), {name: tuple(held) for name, held in held_by.items()})


def _after(members: tuple[_Placed, ...], done: Set[str]) -> list[tuple[int, str, bool]]:
    """Return the places (token, name, whether it is alive) after the changes of the members in `done`."""
    moved = [
        (token, moves_to)
        for token, name, phase, moves_to, _ in members
        if name in done and phase in _ON_RING and moves_to is not None
    ]
    places = []
    for token, name, phase, moves_to, gone in members:
        if phase is MembershipPhase.JOINING:
            if name in done:
                places.append((token, name, True))
        elif phase in _ON_RING:
            if name in done and phase is MembershipPhase.LEAVING:
                places.append((token, name, False))
            elif name in done and moves_to is not None:
                places.append((moves_to, name, True))
            elif not gone or not any(_passes(*mover, token) for mover in moved):
                places.append((token, name, not gone))
    return places


class _Places:
    """Members by place, with the next live members after each place."""

    def __init__(self, entries: list[tuple[int, str, bool]], r: int) -> None:
        entries.sort()
        self._tokens = [token for token, _, _ in entries]
        self._live = [at for at, (_, _, alive) in enumerate(entries) if alive]
        self._names = [name for _, name, _ in entries]
        self._count = min(r + 1, len(self._live))

    def holders(self, place: int) -> tuple[str, ...]:
        if not self._live:
            return ()
        at = (bisect_right(self._tokens, place) - 1) % len(self._tokens)
        first = bisect_left(self._live, at)
        return tuple(self._names[self._live[(first + k) % len(self._live)]] for k in range(self._count))


def _passes(begin: int, end: int, token: int) -> bool:
    """Return True if a member that moves back from one token to another passes a third one."""
    return 0 < distance(end, token) < distance(end, begin)
