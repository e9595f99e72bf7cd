"""Store and load states of units as a host does, for tests of operators."""

from __future__ import annotations

from peacefs.dataflow.unit_state.paged_state import PagedState
from peacefs.state import Checkpointer, MemoryStore, PageManager

_PAGE_BYTES = 8192


class States:
    def __init__(self) -> None:
        self._store = MemoryStore()
        self._sequence = 0

    def begin(self) -> PagedState:
        pages = self._pages()
        return PagedState(pages, self._checkpointer(pages))

    def store_and_load(self, state: PagedState) -> PagedState:
        """Store a checkpoint, and return the state of a unit that starts from it."""
        self._sequence += 1
        state.capture(self._sequence, {}).start().result()
        pages = self._pages()
        checkpointer = self._checkpointer(pages)
        checkpointer.load(self._sequence)
        return PagedState(pages, checkpointer)

    def _checkpointer(self, pages: PageManager) -> Checkpointer:
        return Checkpointer(pages, self._store, "unit", keep=None, reserve=False, in_background=False)

    def _pages(self) -> PageManager:
        return PageManager(page_bytes=_PAGE_BYTES, memory_bytes_max=1 << 23)
