"""How urgent a write is, for the order in which the scheduler grants chunks."""

from __future__ import annotations

from enum import IntEnum

from peacefs.protocol.errors import BadRequest


class WriteClass(IntEnum):
    """The most urgent class has the smallest number.

    `BLOCKING`: a batch cannot commit, or a recovery cannot be bounded, until the write is done. `DUE`: it must be
    done before the next write of the same kind. `BULK`: everything else.
    """

    BLOCKING = 0
    DUE = 1
    BULK = 2

    @property
    def word(self) -> str:
        """The name on the wire and in commands."""
        return self.name.lower()


WRITE_CLASS_WORDS = tuple(each.word for each in WriteClass)


def parse_write_class(word: str) -> WriteClass:
    """Return the class with this name. Raises BadRequest if there is none."""
    if word not in WRITE_CLASS_WORDS:
        raise BadRequest(f"there is no class of writes {word!r}; there are {', '.join(WRITE_CLASS_WORDS)}")
    return WriteClass[word.upper()]
