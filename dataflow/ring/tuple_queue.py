"""Tuples that arrived at a node: those of its own fragments wait to be processed, the others are backed up."""

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
    """A message of a mapper, and the number of its pieces that wait."""

    serial: int
    waiting: int = 0


@dataclass(slots=True)
class QueuedPiece:
    """Rows that wait to be processed. If their fragment has moved elsewhere by then, they are skipped."""

    interval: Interval
    piece: Piece
    message: _HeldState | None = None
    #: True for tuples of an at-least-once replay, which are processed even if the state contains them.
    again: bool = False


class TupleQueue:
    """The queue of a node, and its acknowledgements to mappers.

    A mapper's messages are acknowledged in order, once all of their pieces were processed or backed up.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._queue: deque[QueuedPiece] = deque()
        #: Number of rows in the queue.
        self.rows = 0
        # For each mapper, its messages that were not acknowledged, in order.
        self._held: dict[str, deque[_HeldState]] = {}
        # For each mapper, the number of its unacknowledged rows when it sent its last message.
        self._unheld_rows: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def next_interval(self) -> Interval:
        return self._queue[0].interval

    @property
    def waiting_rows(self) -> int:
        """Approximate number of rows that wait for this node, in its queue or in transit.

        A slow node also reads slowly, so its unread rows wait at the mappers. Of the rows that a mapper sends to a
        node, one part in r + 1 are its own; the others belong to its neighbours.
        """
        on_way = sum(self._unheld_rows.values()) // (self._context.settings.r + 1)
        return max(self.rows, on_way)

    def forget_unheld(self) -> None:
        """Note that the node has caught up, whatever the last messages of idle mappers said."""
        self._unheld_rows.clear()

    def take(self, message: Tuples) -> list[tuple[Fragment, str]]:
        """Take tuples. Return the fragments that miss some tuples, each with a description of these."""
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
        """Note that a piece was processed in all of its fragments."""
        if queued.message is not None:
            queued.message.waiting -= 1

    def back_up(self, fragment: Fragment) -> None:
        """Keep the tuples that wait to be processed, for the next owner of a fragment."""
        for queued in self._queue:
            piece = queued.piece
            if queued.interval.overlaps(fragment.interval) and piece.number > fragment.coverage.get(
                piece.mapper, 0
            ):
                rows = piece.rows.between(fragment.interval)
                fragment.backup.add(Piece(piece.mapper, piece.number, piece.stamp_us, rows))

    def acknowledge(self) -> None:
        """Acknowledge messages to the mappers, unless this node already keeps too much for others."""
        backup_bytes = sum(fragment.backup.held_bytes for fragment in self._context.fragments)
        if backup_bytes > self._context.settings.backup_bytes_max:
            return
        for mapper, held in self._held.items():
            serial = 0
            while held and not held[0].waiting:
                serial = held.popleft().serial
            if serial:
                self._context.send(EDGE, TuplesHeld(mapper, serial))
