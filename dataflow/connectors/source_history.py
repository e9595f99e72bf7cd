"""The order in which a source has given its rows, so that a later program gives them in the same order again.

The parts of a source grow independently, so the order of their rows is chance. It becomes fixed when the history
is written, before a row is given. Slices are dropped from it once no consumer needs their rows any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from peacefs.protocol.errors import CheckpointDamaged

from .interface import PartPlace, Slice

_FORMAT = 1


class _Stored(msgspec.Struct, frozen=True):
    format: int
    identity: str
    #: The number of the row before the first slice.
    before: int
    slices: list[Slice]
    places: dict[str, PartPlace]


class SourceHistory:
    """The slices that a resumed query may need again, and how far each part was read."""

    def __init__(self, identity: str | None = None, before: int = 0) -> None:
        self.identity = identity
        self._before = before
        self._slices: list[Slice] = []
        self._places: dict[str, PartPlace] = {}

    @property
    def before(self) -> int:
        """The number of the row before the first slice."""
        return self._before

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(self._slices)

    @property
    def places(self) -> Mapping[str, PartPlace]:
        """How far each part was read, after all slices."""
        return self._places

    @property
    def starts(self) -> Mapping[str, PartPlace]:
        """The place in each part from which all slices can be read again."""
        firsts: dict[str, PartPlace] = {}
        for each in self._slices:
            firsts.setdefault(each.part, PartPlace(each.begin, each.stamp))
        return {**self._places, **firsts}

    def add(self, slices: Iterable[Slice]) -> None:
        """Add slices in the order in which their rows are given."""
        for each in slices:
            known = self._places.get(each.part)
            assert known is None or (known.end <= each.begin and not known.last), f"{each} comes after {known}"
            self._places[each.part] = PartPlace(each.end, each.stamp, each.last)
            if each.rows:
                self._slices.append(each)

    def forget(self, parts: Iterable[str]) -> None:
        """Forget parts that do not exist any more."""
        for part in parts:
            self._places.pop(part, None)

    def release(self, number: int) -> None:
        """Drop all slices whose rows have numbers up to `number`."""
        count = 0
        for each in self._slices:
            if self._before + each.rows > number:
                break
            self._before += each.rows
            count += 1
        del self._slices[:count]

    def encode(self) -> bytes:
        assert self.identity is not None
        return msgspec.json.encode(
            _Stored(_FORMAT, self.identity, self._before, _joined(self._slices), self._places)
        )

    @staticmethod
    def decode(data: bytes) -> SourceHistory:
        """Decode a history. Raises CheckpointDamaged if `data` is not one."""
        try:
            stored = msgspec.json.decode(data, type=_Stored)
        except msgspec.DecodeError as error:
            raise CheckpointDamaged(f"what a source has read cannot be read: {error}") from None
        if stored.format != _FORMAT:
            raise CheckpointDamaged(
                f"what a source has read is in format {stored.format}; this version reads {_FORMAT}"
            )
        history = SourceHistory(stored.identity, stored.before)
        history._slices, history._places = list(stored.slices), dict(stored.places)
        return history


# A slice that is read again should fit into memory.
_JOINED_ROWS_MAX = 65_536


def _joined(slices: Iterable[Slice]) -> list[Slice]:
    """Join neighbours that continue each other, so that the history stays short."""
    joined: list[Slice] = []
    for each in slices:
        last = joined[-1] if joined else None
        if (
            last is not None
            and (last.part, last.stamp, last.end) == (each.part, each.stamp, each.begin)
            and last.rows + each.rows <= _JOINED_ROWS_MAX
        ):
            joined[-1] = msgspec.structs.replace(last, end=each.end, rows=last.rows + each.rows, last=each.last)
        else:
            joined.append(each)
    return joined
