"""Raw: pages without a layout, for users' own structures."""

from __future__ import annotations

from typing import ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.protocol.errors import StateError
from peacefs.state.kernels.places import HEADER_WORDS, WORD_NEXT
from peacefs.state.pages.page_set import SUPER_PAGE, PageSet

from .structure import Structure

_RAW: Final = 19


class Raw(Structure):
    """Pages by number. Each has `room` bytes and a link to another page."""

    kind: ClassVar[str] = "Raw"

    @classmethod
    def create(cls, page_set: PageSet) -> Self:
        """Create it in a page set, or adopt the recovered one. Raises SchemaMismatch."""
        return cls._create(page_set, pa.schema([]))

    @property
    def room(self) -> int:
        """The usable bytes of a page."""
        return self._frames.page_bytes - HEADER_WORDS * 8

    @property
    def pages(self) -> list[int]:
        """The numbers of all pages, ascending."""
        return [page for page in self._pages.pages if page != SUPER_PAGE]

    def allocate(self) -> int:
        """Return the number of a new page of zeros. Raises PagesExhausted."""
        self._pages.settle()
        return self._pages.allocate(_RAW)

    def release(self, page: int) -> None:
        """Release a page; its number may be reused. Raises StateError if there is no such page."""
        self._check(page)
        self._pages.settle()
        self._pages.release(page)

    def read(self, page: int) -> NDArray[np.uint8]:
        """Return a page's bytes for reading, valid until something changes. Raises StateError."""
        self._check(page)
        found = self._pages.body(page).view(np.uint8)
        found.flags.writeable = False
        return found

    def change(self, page: int) -> NDArray[np.uint8]:
        """Return a page's bytes for changing, valid until the next call. Raises PagesExhausted."""
        self._check(page)
        self._pages.settle()
        return self._pages.writable(page)[HEADER_WORDS:].view(np.uint8)

    def link(self, page: int) -> int:
        """Return the number of the linked page, -1 if there is none."""
        self._check(page)
        return int(self._pages.resolve(page)[WORD_NEXT])

    def set_link(self, page: int, other: int) -> None:
        """Link a page to another page; -1 for none."""
        self._check(page)
        self._pages.settle()
        self._pages.writable(page)[WORD_NEXT] = other

    def _check(self, page: int) -> None:
        if page == SUPER_PAGE or page not in self._pages:
            raise StateError(f"page set {self._pages.name} has no page {page}")
