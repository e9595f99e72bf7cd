"""Load balancing between neighbours, and growing and shrinking of the ring (SMR VI).

An overloaded node asks its clockwise neighbour, which already has its state and its tuples, to take half of its
interval. If that node has too much to do itself, it passes the request on to the next one. If no node has room, a
spare joins.
"""

from __future__ import annotations

from .messages import Invite, Leave, MayLeave, NobodyRelieves, Relieve
from .node_context import NodeContext
from .tokens import distance, halfway
from .transitions import Transitions
from .view import MembershipPhase, RingMember


class RingBalancer:
    def __init__(self, context: NodeContext, transitions: Transitions) -> None:
        self._context = context
        self._transitions = transitions
        self._queue_rows = self._waiting_rows = 0
        self._busy = 0.0
        self._asked_s = float("-inf")
        self._without_spare = False

    def measure(self, queue_rows: int, waiting_rows: int, busy: float) -> None:
        """Set the current load.

        `queue_rows`: rows in the node's queue. `waiting_rows`: these and the rows that it has not read yet.
        `busy`: the share of busy time.
        """
        self._queue_rows, self._waiting_rows, self._busy = queue_rows, waiting_rows, busy

    @property
    def overloaded(self) -> bool:
        settings = self._context.settings
        return self._waiting_rows >= settings.queue_rows_high and self._busy >= settings.busy_high

    @property
    def has_room(self) -> bool:
        settings = self._context.settings
        return self._queue_rows <= settings.queue_rows_low and self._busy <= settings.busy_low

    def tick(self, now_s: float) -> None:
        settings, me = self._context.settings, self._context.me
        if me.phase is not MembershipPhase.LIVE or now_s < self._asked_s + settings.balance_s:
            return
        following = self._next(me.name)
        if settings.balances and self.overloaded and self._transitions.possible:
            self._asked_s = now_s
            if following is None:
                self._take_spare()
            else:
                self._context.send(following, Relieve((me.name,)))
        elif settings.shrinks and self.has_room and self._transitions.possible and following is not None:
            self._asked_s = now_s
            if len(self._context.view.ring) > settings.r + 1:
                self._context.send(following, MayLeave())

    def relieve(self, asked: Relieve) -> None:
        """Take half of the sender's interval, or pass the request on to the next node."""
        view, me = self._context.view, self._context.me
        following = self._next(me.name)
        if self.has_room and self._transitions.possible and me.phase is MembershipPhase.LIVE:
            self.take_half(view.members[asked.asking[-1]])
        elif following is None or following in asked.asking:
            self._context.send(asked.asking[0], NobodyRelieves())
        else:
            self._context.send(following, Relieve((*asked.asking, me.name)))

    def take_half(self, before: RingMember) -> None:
        """Move half of the way towards the previous neighbour on the ring."""
        begin = self._context.view.begin_of(self._context.name)
        is_next = self._context.view.neighbours_before(self._context.name, 1) == [before.name]
        if is_next and before.token is not None and distance(before.token, begin) > 1:
            self._transitions.move(halfway(before.token, begin))

    def nobody_relieves(self) -> None:
        if self.overloaded and self._transitions.possible:
            self._take_spare()

    def may_leave(self, sender: str) -> None:
        if self.has_room and self._transitions.possible:
            self._context.send(sender, Leave())

    def invited(self, invitation: Invite) -> None:
        if self._context.me.phase is MembershipPhase.SPARE:
            self._transitions.join(invitation.token)

    def leave(self) -> None:
        """Leave the ring, if enough other nodes remain."""
        if self._context.me.phase is not MembershipPhase.LIVE or not self._transitions.possible:
            return
        if len(self._context.view.ring) <= self._context.settings.r + 1:
            self._context.say(
                f"node {self._context.name!r} cannot leave: the ring would have fewer than "
                f"{self._context.settings.r + 1} nodes, which r={self._context.settings.r} needs"
            )
            return
        self._transitions.leave()

    def _take_spare(self) -> None:
        """Let a spare join in the middle of this node's interval, if possible one from another rack."""
        me, view = self._context.me, self._context.view
        spares = view.spares
        if not spares:
            if not self._without_spare:
                self._context.say(f"node {me.name!r} has too much to do, and there is no spare: start more nodes")
            self._without_spare = True
            return
        self._without_spare = False
        near = {me.rack, *(view.members[each].rack for each in view.neighbours_after(me.name, 1))}
        chosen = min(spares, key=lambda spare: (spare.rack in near, spare.name))
        token = view.middle_of(me.name)
        assert token is not None
        self._context.send(chosen.name, Invite(token))

    def _next(self, name: str) -> str | None:
        following = self._context.view.neighbours_after(name, 1)
        return following[0] if following else None
