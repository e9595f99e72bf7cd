"""The base of all structures: stores a kind, a schema and a few saved words in the Super Page.

Super Page: header, length of the description in bytes, SAVED_WORDS words, description
description: a line of JSON {"kind": ..., "key": [...]}, then the schema as Arrow encodes it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, Final, Self

import numpy as np
import pyarrow as pa

from peacefs.protocol.errors import RecordRefused, SchemaMismatch, StateError
from peacefs.state.kernels.places import HEADER_WORDS
from peacefs.state.pages.page_set import SUPER_PAGE, PageSet

from .records import Words

SAVED_WORDS: Final = 16
_LENGTH: Final = HEADER_WORDS
_SAVED: Final = HEADER_WORDS + 1
_DESCRIPTION: Final = _SAVED + SAVED_WORDS


class Structure:
    """A data structure in a page set, created or recovered with a schema; the base of all structures.

    Everything outside the pages can be rebuilt from them and from `_saved`, which every checkpoint contains.
    """

    kind: ClassVar[str]

    def __init__(self, page_set: PageSet, schema: pa.Schema, key: Sequence[str]) -> None:
        """Initialise the base. Users call `create` instead."""
        self._pages = page_set
        self._frames = page_set.frames
        self.schema: pa.Schema = schema
        self.key: tuple[str, ...] = tuple(key)
        #: State that cannot be rebuilt from the pages. A subclass defines the meaning of each word.
        self._saved: Words = np.zeros(SAVED_WORDS, np.int64)

    @classmethod
    def _create(cls, page_set: PageSet, schema: pa.Schema, key: Sequence[str] = ()) -> Self:
        """Create a structure, or adopt the one that a checkpoint contained. Raises SchemaMismatch."""
        made = cls(page_set, schema, key)
        description = made._description()
        stored = page_set.resolve(SUPER_PAGE)
        length = int(stored[_LENGTH])
        if length:
            found = stored[_DESCRIPTION:].tobytes()[:length]
            _check(page_set.name, found, description)
            made._saved[:] = stored[_SAVED:_DESCRIPTION]
            made._recover()
        else:
            room = (len(stored) - _DESCRIPTION) * 8
            if len(description) > room:
                raise RecordRefused(f"the schema takes {len(description)} bytes; a Super Page has {room} for it")
            page = page_set.writable(SUPER_PAGE)
            page[_LENGTH] = len(description)
            padded = description + bytes(-len(description) % 8)
            page[_DESCRIPTION : _DESCRIPTION + len(padded) // 8] = np.frombuffer(padded, np.int64)
            made._begin()
        page_set.write_super_page = made._write_super_page
        return made

    @property
    def memory_bytes(self) -> int:
        """The size of its pages in bytes."""
        return len(self._pages) * self._frames.page_bytes

    def _begin(self) -> None:
        """Initialise an empty structure."""

    def _recover(self) -> None:
        """Rebuild from the pages what is kept outside them."""

    def _before_saving(self) -> None:
        """Update `_saved` before a checkpoint."""

    def _write_super_page(self) -> None:
        self._before_saving()
        if not np.array_equal(self._pages.resolve(SUPER_PAGE)[_SAVED:_DESCRIPTION], self._saved):
            self._pages.writable(SUPER_PAGE)[_SAVED:_DESCRIPTION] = self._saved

    def _description(self) -> bytes:
        first = json.dumps({"kind": self.kind, "key": list(self.key)}).encode()
        fields: bytes = self.schema.remove_metadata().serialize().to_pybytes()
        return first + b"\n" + fields


def _check(name: str, stored: bytes, wanted: bytes) -> None:
    if stored == wanted:
        return
    try:
        found, asked = _parse(stored), _parse(wanted)
    except (ValueError, pa.ArrowException):
        raise StateError(f"page set {name} has a Super Page that cannot be read") from None
    for what, is_, should in zip(("a", "its key is", "its schema is"), found, asked, strict=True):
        if is_ != should:
            raise SchemaMismatch(f"page set {name} was recovered, {what} {is_}; asked for was {should}")


def _parse(description: bytes) -> tuple[str, str, str]:
    first, _, schema = description.partition(b"\n")
    said = json.loads(first)
    fields = pa.ipc.read_schema(pa.py_buffer(schema))
    return (
        said["kind"],
        ", ".join(said["key"]) or "none",
        ", ".join(f"{each.name}: {each.type}" for each in fields),
    )
