"""The fragments that a node must have according to the ring, and which parts of them are missing."""

from __future__ import annotations

from .effects import LeaveRing
from .fragment import Fragment
from .messages import EDGE, CopyWanted, StateLost
from .node_context import NodeContext
from .result_outbox import ResultOutbox
from .tuple_queue import QueuedPiece, TupleQueue
from .view import MembershipPhase


class FragmentPlaces:
    """Adds and removes fragments, makes the node their owner, and reports what is lost.

    If an owner lacks something, it asks the other holders, and waits as long as one of them may have it.
    `ReducerCore` calls `assign` when the ring has changed, and passes what other holders send.
    """

    def __init__(self, context: NodeContext, queue: TupleQueue, outbox: ResultOutbox) -> None:
        self._context, self._queue, self._outbox = context, queue, outbox
        self._asked_s = float("-inf")
        #: True once the ring has no place for the node.
        self.gone = False
        #: Number of rows that were processed again after a take-over.
        self.replayed_rows = 0

    def assign(self, now_s: float, *, begins: bool = False) -> None:
        """Add the fragments that this node owns or holds according to the ring, and drop all others."""
        context = self._context
        view, fragments, name = context.view, context.fragments, context.name
        if view.is_gone(name):
            self.gone = True
            left = view.members[name].phase is MembershipPhase.LEAVING
            reason = "has left the ring" if left else "has no place any more: another has taken its token over"
            context.effects.append(LeaveRing(f"node {name!r} {reason}"))
            return
        for fragment in list(fragments):
            for place in view.places_within(fragment.interval):
                fragments.cut_at(place)
        for arc in view.arcs_of(name):
            for gap in fragments.gaps(arc.interval):
                fragment = Fragment(gap, context.new_table(), has_state=begins)
                if begins:
                    fragment.begins = dict.fromkeys(context.mappers, 0)
                fragments.add(fragment)
        for fragment in list(fragments):
            arc = view.arc_at(fragment.interval.low)
            fragment.waits_for = {each for each in fragment.waits_for if each in arc.holders}
            if name not in arc.holders:
                fragment.give_up_cut()
                fragments.remove(fragment)
            elif arc.owner == name and not fragment.primary:
                fragment.based = fragment.based or set(arc.holders)
                self._promote(now_s, fragment, arc.holders)
            elif arc.owner != name:
                if fragment.primary:
                    self._demote(fragment)
                fragment.based = set(arc.holders)
            elif fragment.primary:
                fragment.based &= set(arc.holders)
                self._look_for_loss(fragment)

    def _promote(self, now_s: float, fragment: Fragment, holders: tuple[str, ...]) -> None:
        """Become the owner of a fragment, from the local data or from a copy of another holder."""
        fragment.primary, fragment.cut_s = True, now_s
        if not fragment.complete(self._context.mappers):
            fragment.waits_for = {each for each in holders if each != self._context.name}
            self._asked_s = float("-inf")
            self._look_for_loss(fragment, first=True)
        else:
            self._begin(fragment)

    def _begin(self, fragment: Fragment) -> None:
        """Replay the tuples since the state, and continue."""
        fragment.waits_for = set()
        fragment.base = dict(fragment.coverage)
        fragment.reported = dict(fragment.coverage)
        for result in fragment.results:
            self._outbox.send(result)
        for piece in fragment.backup.pieces():
            again = not self._context.settings.exactly_once
            if again or piece.number > fragment.coverage.get(piece.mapper, 0):
                self.replayed_rows += len(piece.rows)
                self._queue.add(QueuedPiece(fragment.interval, piece, again=again))
        fragment.backup.clear()

    def _demote(self, fragment: Fragment) -> None:
        """Become a holder that only keeps a copy: the present state, and the tuples that wait to be processed."""
        fragment.give_up_cut()
        fragment.primary, fragment.waits_for, fragment.wants_cut = False, set(), False
        self._queue.back_up(fragment)

    # -- what is missing ---------------------------------------------------------------------------------

    def ask_for_copies(self, now_s: float) -> None:
        waiting = [fragment for fragment in self._context.fragments if fragment.waits_for]
        if waiting and now_s >= self._asked_s + self._context.settings.suspect_s:
            self._asked_s = now_s
            for fragment in waiting:
                for name in sorted(fragment.waits_for):
                    self._context.send(name, CopyWanted(fragment.interval, as_owner=True))

    def try_copies(self) -> None:
        """Begin with the fragments that are complete now."""
        for fragment in self._context.fragments:
            if fragment.primary and fragment.waits_for and fragment.complete(self._context.mappers):
                self._begin(fragment)

    def refused(self, sender: str, within: list[Fragment]) -> None:
        """Note that another holder lacks what this node asked for."""
        for fragment in within:
            fragment.waits_for.discard(sender)
            self._look_for_loss(fragment)

    def _look_for_loss(self, fragment: Fragment, *, first: bool = False) -> None:
        """If no holder has the missing data, report the loss, and continue without them."""
        if not fragment.primary or fragment.waits_for or fragment.complete(self._context.mappers):
            return
        if not first and fragment.has_state and not fragment.missing(self._context.mappers):
            return
        self.lose(fragment, "its state" if not fragment.has_state else "some of its tuples")
        fragment.has_state = True
        fragment.begins = dict.fromkeys(self._context.mappers, 0)
        self._begin(fragment)

    def lose(self, fragment: Fragment, what: str) -> None:
        """Report that a part of a fragment is lost."""
        reason = (
            f"{what} of {fragment.interval.share:.1%} of the ring is lost: {self._context.settings.r + 1} "
            "neighbours or more died at once; raise r, or place neighbours in different racks"
        )
        self._context.send(EDGE, StateLost(fragment.interval, reason))
