"""Tuples of an interval that a neighbour keeps until a checkpoint contains them (SMR V-B, V-D)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .coverage import Coverage
from .hashed_rows import HashedRows
from .tokens import Interval


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one batch of a mapper that belong to one interval; possibly none."""

    mapper: str
    number: int
    #: The mapper's time when it sent the batch. It rises from batch to batch.
    stamp_us: int
    rows: HashedRows


class TupleBackup:
    def __init__(self) -> None:
        self._pieces: dict[str, deque[Piece]] = {}
        self.held_bytes = 0

    def add(self, piece: Piece) -> None:
        self._pieces.setdefault(piece.mapper, deque()).append(piece)
        self.held_bytes += piece.rows.bytes

    def evict_covered(self, coverage: Coverage) -> None:
        """Drop what a checkpoint contains. Used for exactly-once."""
        for mapper, pieces in self._pieces.items():
            while pieces and pieces[0].number <= coverage.get(mapper, 0):
                self.held_bytes -= pieces.popleft().rows.bytes

    def evict_before(self, stamp_us: int, coverage: Coverage) -> list[str]:
        """Drop tuples before a time. If clocks agree, the checkpoint contains all of them (SMR V-D).

        Return the mappers with older tuples that the checkpoint does not contain: their clocks are slow by more
        than the bound. Those tuples are kept.
        """
        late = []
        for mapper, pieces in self._pieces.items():
            while pieces and pieces[0].stamp_us < stamp_us:
                if pieces[0].number > coverage.get(mapper, 0):
                    late.append(mapper)
                    break
                self.held_bytes -= pieces.popleft().rows.bytes
        return late

    def pieces(self) -> Iterator[Piece]:
        """Yield all pieces ordered by time, and by number within a mapper."""
        yield from sorted(
            (piece for pieces in self._pieces.values() for piece in pieces),
            key=lambda piece: (piece.stamp_us, piece.mapper, piece.number),
        )

    def drop_until(self, numbers: Mapping[str, int]) -> None:
        """Drop all pieces up to the given number of each mapper, in whatever order they are here."""
        for mapper, pieces in self._pieces.items():
            kept = [piece for piece in pieces if piece.number > numbers.get(mapper, 0)]
            self.held_bytes -= sum(piece.rows.bytes for piece in pieces) - sum(piece.rows.bytes for piece in kept)
            self._pieces[mapper] = deque(kept)

    def clear(self) -> None:
        self._pieces.clear()
        self.held_bytes = 0

    def split(self, at: int, interval: Interval) -> tuple[TupleBackup, TupleBackup]:
        """Split the pieces at a place of their interval."""
        halves = TupleBackup(), TupleBackup()
        parts = Interval(interval.low, at), Interval(at, interval.high)
        for piece in self.pieces():
            for half, part in zip(halves, parts, strict=True):
                half.add(Piece(piece.mapper, piece.number, piece.stamp_us, piece.rows.between(part)))
        return halves
