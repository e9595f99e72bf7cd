"""Changes of the ring while it runs: a node moves, joins or leaves (SMR VI, Figures 10 to 12).

All three work alike. The member announces the change. From then on the future holders of its tuples receive these,
and owners send them the state. When all of them have what they need, the member completes the change by updating
its entry. If it dies before that, nothing has changed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from peacefs.dataflow.core.number_ranges import NumberRanges

from .checkpointing import Checkpointing
from .messages import Established
from .node_context import NodeContext
from .tokens import RING
from .view import Arc, MembershipPhase, RingMember


class Transitions:
    """The change of the ring that this node is making: it moves, joins or leaves.

    A node makes one change at a time. If several nearby nodes have begun changes, the one with the first name
    continues and the others withdraw. The change takes effect in `finish`, once all holders have what they need.
    `RingBalancer` begins changes; `ReducerCore` passes reports and calls `finish` after each event.
    """

    def __init__(self, context: NodeContext, checkpointing: Checkpointing) -> None:
        self._context = context
        self._checkpointing = checkpointing
        self._reports: dict[tuple[str, tuple[str, ...], tuple[str, ...]], NumberRanges] = defaultdict(NumberRanges)

    # -- beginnings --------------------------------------------------------------------------------------

    def move(self, token: int) -> None:
        self._change(moves_to=self._free(token))

    def join(self, token: int) -> None:
        self._change(phase=MembershipPhase.JOINING, token=self._free(token))

    def leave(self) -> None:
        self._change(phase=MembershipPhase.LEAVING)

    @property
    def possible(self) -> bool:
        """True if this node may begin a change: neither it nor a neighbour is making one."""
        return not self._context.me.in_transition and not self._others_nearby()

    def withdraw(self) -> None:
        """Cancel a change, as if it had not begun."""
        me = self._context.me
        if me.phase is MembershipPhase.JOINING:
            self._change(phase=MembershipPhase.SPARE, token=None)
        else:
            self._change(phase=MembershipPhase.LIVE, moves_to=None)

    # -- ends --------------------------------------------------------------------------------------------

    def established(self, name: str, report: Established) -> None:
        ranges = self._reports[name, report.now, report.next]
        ranges.add(report.interval.low + 1, report.interval.high)

    def finish(self) -> bool:
        """Complete the change if all holders have what they need. Return True if the ring has changed."""
        me = self._context.me
        if not me.in_transition:
            return False
        if me.phase is MembershipPhase.LEAVING and all(
            self._context.view.members[name].phase is MembershipPhase.LEAVING for name in self._context.view.ring
        ):
            # The nodes that were to take its state have died meanwhile.
            self.withdraw()
            return True
        rivals = self._others_nearby()
        if rivals:
            if min(rivals) < me.name:
                self.withdraw()
                return True
            return False
        arcs = [arc for arc in self._context.view.arcs_of(me.name) if arc.now != arc.next]
        if not all(self._has_all(arc) for arc in arcs):
            return False
        self._reports.clear()
        if me.phase is MembershipPhase.LEAVING:
            self._context.view.merge([replace(me, gone=True)])
        elif me.phase is MembershipPhase.JOINING:
            self._change(phase=MembershipPhase.LIVE)
        else:
            assert me.moves_to is not None
            passed = self._context.view.passed(me.name, me.moves_to)
            given_up = [replace(each, token=None, version=each.version + 1) for each in passed]
            moved = replace(me, token=me.moves_to, moves_to=None, version=me.version + 1)
            self._context.view.merge([moved, *given_up])
            self._context.tell_all()
        return True

    def _has_all(self, arc: Arc) -> bool:
        for name in arc.next:
            if name == self._context.name:
                here = self._context.fragments.within(arc.interval)
                gaps = self._context.fragments.gaps(arc.interval)
                if gaps or not all(self._checkpointing.ready(each) for each in here):
                    return False
            elif name != arc.owner:
                ranges = self._reports.get((name, arc.now, arc.next))
                if ranges is None or not ranges.covers(arc.interval.low + 1, arc.interval.high):
                    return False
        return True

    def _others_nearby(self) -> list[str]:
        """Return the members near this one that are making a change."""
        view, name = self._context.view, self._context.name
        reach = self._context.settings.r + 2
        near = {*view.neighbours_before(name, reach), *view.neighbours_after(name, reach)}
        return [
            other.name
            for other in view.members.values()
            if other.in_transition
            and other.name != name
            and (other.name in near or near & set(view.neighbours_after(other.name, 1)))
        ]

    def _free(self, token: int) -> int:
        """Return the token, or the next free one."""
        taken = {each.token for each in self._context.view.members.values()}
        while token in taken:
            token = (token + 1) % RING
        return token

    def _change(self, **changes: object) -> None:
        me: RingMember = replace(self._context.me, version=self._context.me.version + 1, **changes)  # type: ignore[arg-type]
        self._context.view.merge([me])
        self._context.tell_all()
