"""Incremental, asynchronous checkpoints of fragments, from the owner to its neighbours (SMR V-C, V-D).

Each checkpoint says what it contains (its coverage) and which state it is based on. A holder accepts it if it has
at least that base; otherwise it requests the whole state. The owner waits for nobody.
"""

from __future__ import annotations

from .coverage import contains
from .effects import Serialise
from .fragment import Fragment, RunningCut
from .messages import CopyRefused, CopyWanted, Established, KeptTuples, PeerCheckpoint
from .node_context import NodeContext
from .tokens import Interval
from .tuple_backup import Piece


class Checkpointing:
    """Checkpoints of fragments on one node: sends those of its own fragments, and receives those of others.

    A fragment has at most one checkpoint under way. A holder accepts a checkpoint only if it contains everything
    that the holder's state contains, so that no state goes back in time. `ReducerCore` calls it with messages and
    the time; `Transitions` asks it whether a fragment is `ready`.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._numbers = 0
        # Mappers whose slow clocks were already reported to the user.
        self._late: set[str] = set()
        # For each fragment, the change of the ring for which it was already reported as established.
        self._said: dict[Interval, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    # -- the owner ---------------------------------------------------------------------------------------

    def cut_due(self, now_s: float) -> None:
        """Begin the checkpoints that are due."""
        for fragment in self._context.fragments:
            if not fragment.primary or fragment.waits_for or fragment.cut is not None:
                continue
            others = [each for each in self._context.holders(fragment.interval) if each != self._context.name]
            lacking = frozenset(each for each in others if each not in fragment.based)
            due = now_s >= fragment.cut_s + self._context.settings.checkpoint_s
            changed = fragment.coverage != fragment.base
            if not others or fragment.wide_results or not (lacking or fragment.wants_cut or (due and changed)):
                continue
            self._cut(now_s, fragment, lacking, full_only=len(lacking) == len(others))

    def _cut(self, now_s: float, fragment: Fragment, lacking: frozenset[str], *, full_only: bool) -> None:
        self._numbers += 1
        fragment.table.cut()
        fragment.cut_s, fragment.wants_cut = now_s, False
        fragment.cut = RunningCut(
            self._numbers,
            dict(fragment.base),
            dict(fragment.coverage),
            fragment.stamp_us,
            tuple(fragment.results),
            lacking,
        )
        self._context.effects.append(
            Serialise(
                fragment.interval,
                self._numbers,
                None if full_only else fragment.table.changes,
                fragment.table.everything if lacking else None,
            )
        )

    def serialised(
        self, interval: Interval, number: int, changes: tuple[bytes, ...], everything: tuple[bytes, ...]
    ) -> None:
        """Send a checkpoint to all holders, and merge its changes into the master state."""
        fragment = self._context.fragments.at(interval)
        if fragment is None or fragment.cut is None or fragment.cut.number != number:
            return
        cut, fragment.cut = fragment.cut, None
        for holder in self._context.holders(interval):
            if holder == self._context.name:
                continue
            full = holder in cut.full_for
            if not full and holder not in fragment.based:
                continue
            fragment.based.add(holder)
            self._context.send(
                holder,
                PeerCheckpoint(
                    interval,
                    number,
                    None if full else cut.base,
                    cut.coverage,
                    cut.stamp_us,
                    cut.results,
                    everything if full else changes,
                ),
            )
        fragment.table.merge()
        fragment.base = cut.coverage

    def not_serialised(self, interval: Interval, number: int) -> None:
        """Give up a checkpoint that could not be made. The next one includes its changes."""
        fragment = self._context.fragments.at(interval)
        if fragment is not None and fragment.cut is not None and fragment.cut.number == number:
            fragment.give_up_cut()

    # -- the other holders -------------------------------------------------------------------------------

    def received(self, sender: str, checkpoint: PeerCheckpoint) -> None:
        for fragment in self._context.fragments.cut_around(checkpoint.interval):
            if fragment.primary and not fragment.waits_for:
                continue
            if not self._take(fragment, checkpoint):
                if not contains(fragment.coverage, checkpoint.coverage):
                    self._context.send(sender, CopyWanted(fragment.interval))
                continue
            fragment.fresh = fragment.fresh or checkpoint.interval == fragment.interval
            if not fragment.primary:
                self._evict(fragment, checkpoint)

    def _take(self, fragment: Fragment, checkpoint: PeerCheckpoint) -> bool:
        """Apply a checkpoint to a fragment, if it fits to the present state."""
        full = checkpoint.base is None
        if fragment.has_state:
            if not contains(checkpoint.coverage, fragment.coverage):
                return False
            if not full and not contains(fragment.coverage, checkpoint.base or {}):
                return False
        elif not full:
            return False
        fragment.table.take(checkpoint.entries, fragment.interval, anew=full)
        if fragment.waits_for:
            # Drop the tuples of an earlier copy: this copy includes them again.
            fragment.backup.drop_until(fragment.begins)
        fragment.has_state = True
        fragment.coverage = dict(checkpoint.coverage)
        fragment.stamp_us = max(fragment.stamp_us, checkpoint.stamp_us)
        fragment.results = [each for each in checkpoint.results if each.interval.overlaps(fragment.interval)]
        return True

    def _evict(self, fragment: Fragment, checkpoint: PeerCheckpoint) -> None:
        settings = self._context.settings
        if settings.exactly_once:
            fragment.backup.evict_covered(fragment.coverage)
            return
        before_us = checkpoint.stamp_us - 2 * int(settings.latency_s * 1_000_000)
        for mapper in fragment.backup.evict_before(before_us, fragment.coverage):
            if mapper not in self._late:
                self._late.add(mapper)
                self._context.say(
                    f"the clock of mapper {mapper!r} is behind by more than latency_s={settings.latency_s}: its "
                    "tuples are kept until a checkpoint has them; set the clock, or raise latency_s"
                )

    def report_established(self) -> None:
        """Report which fragments this node could own now, to the nodes that wait for this to change the ring."""
        for fragment in self._context.fragments:
            arc = self._context.view.arc_at(fragment.interval.low)
            if arc.now == arc.next:
                self._said.pop(fragment.interval, None)
                continue
            if self._said.get(fragment.interval) == (arc.now, arc.next) or not self.ready(fragment):
                continue
            self._said[fragment.interval] = (arc.now, arc.next)
            for name in arc.holders:
                if name != self._context.name:
                    self._context.send(name, Established(fragment.interval, arc.now, arc.next))

    def ready(self, fragment: Fragment) -> bool:
        """Return True if this node could own a fragment, with results of exactly this fragment."""
        return fragment.fresh and not fragment.wide_results and fragment.complete(self._context.mappers)

    # -- copies ------------------------------------------------------------------------------------------

    def copy_wanted(self, sender: str, wanted: CopyWanted) -> None:
        for fragment in self._context.fragments.cut_around(wanted.interval):
            if not wanted.as_owner:
                fragment.based.discard(sender)
            elif fragment.complete(self._context.mappers) and not fragment.primary:
                self._give_copy(sender, fragment)
            else:
                self._context.send(sender, CopyRefused(fragment.interval))
        for gap in self._context.fragments.gaps(wanted.interval) if wanted.as_owner else ():
            self._context.send(sender, CopyRefused(gap))

    def _give_copy(self, owner: str, fragment: Fragment) -> None:
        """Send an owner everything that this node has of a fragment: its state, and the tuples since."""
        self._context.send(
            owner,
            PeerCheckpoint(
                fragment.interval,
                0,
                None,
                dict(fragment.coverage),
                fragment.stamp_us,
                tuple(fragment.results),
                fragment.table.everything(),
            ),
        )
        pieces = [each for each in fragment.backup.pieces() if each.number > fragment.coverage.get(each.mapper, 0)]
        for piece in pieces:
            self._context.send(
                owner,
                KeptTuples(fragment.interval, piece.mapper, piece.number, piece.stamp_us, piece.rows),
            )
        for mapper, upto in fragment.upto.items():
            self._context.send(owner, KeptTuples(fragment.interval, mapper, upto, last=True))

    def kept_tuples(self, kept: KeptTuples) -> None:
        """Add tuples from between the copied state and the tuples that this node received itself."""
        for fragment in self._context.fragments.cut_around(kept.interval):
            if not fragment.waits_for or not fragment.has_state:
                continue
            begins = fragment.begins.get(kept.mapper)
            if kept.last:
                if begins is None or kept.number >= begins:
                    fragment.begins[kept.mapper] = min(fragment.coverage.get(kept.mapper, 0), begins or 0)
                    fragment.upto[kept.mapper] = max(fragment.upto.get(kept.mapper, 0), kept.number)
            elif kept.rows is not None and (begins is None or kept.number <= begins):
                piece = Piece(kept.mapper, kept.number, kept.stamp_us, kept.rows.between(fragment.interval))
                fragment.backup.add(piece)
