"""Tuples that came to a node: those of its own fragments wait to be processed, the others are backed up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .fragment import Fragment
from .messages import EDGE, Tuples, TuplesHeld
from .node_context import NodeContext
from .tokens import Interval
from .tuple_backup import Piece


@dataclass(slots=True)
class _HeldState:
    """A message of a mapper, and how many of its pieces wait."""

    serial: int
    waiting: int = 0


@dataclass(slots=True)
class QueuedPiece:
    """Rows that wait to be processed; those of fragments that are elsewhere by then are left out."""

    interval: Interval
    piece: Piece
    message: _HeldState | None = None
    #: True for tuples that are replayed at least once, whether the state contains them or not.
    again: bool = False


class TupleQueue:
    """The queue of a node, and what mappers are told that the node has.

    A mapper's messages are acknowledged in their order, once all pieces of them were processed or backed up.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._queue: deque[QueuedPiece] = deque()
        #: Rows in the queue.
        self.rows = 0
        # Messages of mappers that were not acknowledged, in order.
        self._held: dict[str, deque[_HeldState]] = {}
        # Rows that each mapper has sent, and that were not acknowledged, when it sent its last message.
        self._unheld_rows: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def next_interval(self) -> Interval:
        return self._queue[0].interval

    @property
    def waiting_rows(self) -> int:
        """Rows that wait for this node, in its queue or on their way to it, about.

        A node that is slow reads slowly, too: what it has not read waits with the mappers. Of what a mapper sends
        to a node, its own rows are one part of r + 1; the others are for its neighbours.
        """
        on_way = sum(self._unheld_rows.values()) // (self._context.settings.r + 1)
        return max(self.rows, on_way)

    def forget_unheld(self) -> None:
        """Learn that the node has caught up, whatever mappers that have stopped since said last."""
        self._unheld_rows.clear()

    def take(self, message: Tuples) -> list[tuple[Fragment, str]]:
        """Take tuples. Return fragments of which some are missing, each with what is."""
        held = _HeldState(message.serial)
        self._unheld_rows[message.mapper] = message.unheld_rows
        self._held.setdefault(message.mapper, deque()).append(held)
        lost = []
        for span in message.spans:
            for fragment in self._context.fragments.cut_around(span):
                missing = self._take_piece(fragment, message, held)
                if missing:
                    lost.append((fragment, missing))
        return lost

    def _take_piece(self, fragment: Fragment, message: Tuples, held: _HeldState) -> str:
        upto, missing = fragment.upto.get(message.mapper, 0), ""
        if not fragment.receive(message.mapper, message.after, message.number):
            return missing
        piece = Piece(message.mapper, message.number, message.stamp_us, message.rows.between(fragment.interval))
        if fragment.primary and not fragment.waits_for:
            if message.after > max(upto, fragment.coverage.get(message.mapper, 0)):
                missing = f"batches {upto + 1} to {message.after} of mapper {message.mapper!r}"
                fragment.begins[message.mapper] = 0
            held.waiting += 1
            self.add(QueuedPiece(fragment.interval, piece, held))
        elif message.number > fragment.coverage.get(message.mapper, 0):
            fragment.backup.add(piece)
        return missing

    def add(self, queued: QueuedPiece) -> None:
        self._queue.append(queued)
        self.rows += len(queued.piece.rows)

    def pop(self) -> QueuedPiece:
        queued = self._queue.popleft()
        self.rows -= len(queued.piece.rows)
        return queued

    def done(self, queued: QueuedPiece) -> None:
        """Learn that a piece was processed in all fragments that it is of."""
        if queued.message is not None:
            queued.message.waiting -= 1

    def back_up(self, fragment: Fragment) -> None:
        """Keep what waits to be processed for the next owner of a fragment."""
        for queued in self._queue:
            piece = queued.piece
            if queued.interval.overlaps(fragment.interval) and piece.number > fragment.coverage.get(
                piece.mapper, 0
            ):
                rows = piece.rows.between(fragment.interval)
                fragment.backup.add(Piece(piece.mapper, piece.number, piece.stamp_us, rows))

    def acknowledge(self) -> None:
        """Tell mappers what this node has, unless it keeps too much for others already."""
        backup_bytes = sum(fragment.backup.held_bytes for fragment in self._context.fragments)
        if backup_bytes > self._context.settings.backup_bytes_max:
            return
        for mapper, held in self._held.items():
            serial = 0
            while held and not held[0].waiting:
                serial = held.popleft().serial
            if serial:
                self._context.send(EDGE, TuplesHeld(mapper, serial))
