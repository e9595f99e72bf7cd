"""The page manager: page sets by name, and checkpoints as changes of flags (SGuard, Tables 1 and 4).

A manager belongs to one thread at a time, that of its operators. Other threads `post` events (pages were written,
a checkpoint was published or failed). The owning thread handles them in `settle`, before its next change or
checkpoint. So only one thread changes flags, and kernels need no lock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from peacefs.protocol.errors import BadRequest, StateError
from peacefs.protocol.limits import KIB, state_generations_max
from peacefs.state.kernels.places import DIRTY, READ_ONLY, RETIRED
from peacefs.state.limits import state_live_share_min

from .frames import NOBODY, FrameNumbers, Frames, Words
from .generations import choose_rewritten
from .page_set import SUPER_PAGE, PageSet, page_of, set_of
from .snapshot import PageSnapshot, StoredPages

state_page_bytes_default: Final = 64 * KIB
# Page sets per page manager; the number of a set is the upper half of a page id.
state_page_sets_max: Final = 65_536
# Default share of the machine's memory that a page manager may use.
state_memory_share_default: Final = 0.5


SUPER_LAYOUT = 1


class PageManager:
    """Page sets by name, in at most `memory_bytes_max` bytes (default: half of the machine's memory).

    `page_bytes` is 65,536 or 8,192. Memory is used on demand and kept until the manager is gone. During a
    checkpoint a page may exist twice. If memory runs out then, the operator waits for pages to be written. New
    maps hash texts with `secret` (16 bytes); with the same secret they scan in the same order again.
    """

    def __init__(
        self,
        *,
        page_bytes: int = state_page_bytes_default,
        memory_bytes_max: int | None = None,
        secret: bytes | None = None,
    ) -> None:
        if secret is not None and len(secret) != 16:
            raise BadRequest(f"a secret of {len(secret)} bytes was given: it has 16")
        self._secret: Words = np.frombuffer(secret or os.urandom(16), np.int64)
        if memory_bytes_max is None:
            memory_bytes_max = int(_memory_of_machine() * state_memory_share_default)
        self.frames = Frames(page_bytes, memory_bytes_max)
        self._sets: dict[str, PageSet] = {}
        self._by_number: dict[int, PageSet] = {}
        self._next_number = 1
        self._underway: PageSnapshot | None = None
        self._posted: deque[Callable[[], None]] = deque()

    @property
    def page_bytes(self) -> int:
        return self.frames.page_bytes

    @property
    def memory_bytes(self) -> int:
        """The bytes in use, with old copies that are still being written."""
        return self.frames.used * self.page_bytes

    @property
    def clones(self) -> int:
        """How many pages were cloned so far because they changed while they were being written."""
        return self.frames.clones

    @property
    def names(self) -> list[str]:
        """The names of the page sets, oldest first."""
        return list(self._sets)

    # -- page sets (SGuard, Table 1) ---------------------------------------------------------------

    def page_set(self, name: str) -> PageSet:
        """Return the page set of this name; create it if there is none."""
        return self.recover(name) if self.exists(name) else self.create(name)

    def create(self, name: str) -> PageSet:
        """Create a page set with its Super Page. Raises StateError if the name is taken, PagesExhausted."""
        if not name or name in self._sets:
            raise StateError(f"page set {name!r} exists already" if name else "a page set needs a name")
        if len(self._sets) >= state_page_sets_max:
            raise StateError(f"{len(self._sets)} page sets are as many as a page manager may have")
        while self._next_number in self._by_number:
            self._next_number += 1
        made = PageSet(self.frames, name, self._next_number, self.settle, self._secret)
        assert made.allocate(SUPER_LAYOUT) == SUPER_PAGE
        self._sets[name] = self._by_number[made.number] = made
        self._next_number = made.number % (2**31 - 1) + 1
        return made

    def destroy(self, name: str) -> None:
        """Release all pages of a set. Raises StateError if there is none."""
        gone = self.recover(name)
        for page in gone.pages:
            gone.release(page)
        del self._sets[name], self._by_number[gone.number]

    def exists(self, name: str) -> bool:
        """Return whether there is a page set of this name, created or recovered (Table 4)."""
        return name in self._sets

    def recover(self, name: str) -> PageSet:
        """Return an existing page set (Table 4). Raises StateError if there is none."""
        if name not in self._sets:
            raise StateError(f"there is no page set {name}; there are: {', '.join(self._sets) or 'none'}")
        return self._sets[name]

    def resolve(self, identity: int) -> Words:
        """Return the words of a page, for reading only. Raises StateError if there is none."""
        found = self._by_number.get(set_of(identity))
        if found is None or page_of(identity) not in found:
            raise StateError(f"there is no page {page_of(identity)} in page set {set_of(identity)}")
        return found.resolve(page_of(identity))

    # -- checkpoints (SGuard 4.4) ------------------------------------------------------------------

    @property
    def underway(self) -> PageSnapshot | None:
        """The checkpoint that was prepared, and is neither published nor cancelled yet."""
        return self._underway

    def prepare(
        self,
        sequence: int,
        names: Collection[str] | None = None,
        *,
        full: bool = False,
        generations_max: int = state_generations_max,
        live_share_min: float = state_live_share_min,
        stored_counts: dict[int, int] | None = None,
    ) -> PageSnapshot:
        """Copy the page list and mark the pages to be written as read-only. This is the pause of a checkpoint.

        The pages to write are those that changed since the last checkpoint, or with `full` all. They include
        unchanged pages if a restore would otherwise read too many older checkpoints, or one with few needed pages
        (of `stored_counts`). Raises StateError while another checkpoint is under way.
        """
        self.settle()
        if self._underway is not None:
            raise StateError(f"checkpoint {self._underway.sequence} is still being written")
        sets = [self._sets[name] for name in self._sets if names is None or name in names]
        for each in sets:
            each.write_super_page()
        frames, high = self.frames, self.frames.high
        owner, flags = frames.owner[:high], frames.flags[:high]
        live = owner != NOBODY
        if len(sets) < len(self._sets):
            live &= np.isin(owner >> 32, [each.number for each in sets])
        changed = live & (flags & DIRTY != 0) if not full else live.copy()
        clean = live & ~changed
        rewritten = choose_rewritten(
            frames.stored_in[:high][clean], stored_counts or {}, generations_max - 1, live_share_min
        )
        if rewritten:
            changed |= clean & np.isin(frames.stored_in[:high], list(rewritten))
            clean = live & ~changed
        chosen = np.flatnonzero(changed).astype(np.int32)
        flags[chosen] = READ_ONLY
        self._underway = PageSnapshot(
            sequence,
            self.page_bytes,
            tuple((each.name, each.number) for each in sets),
            chosen,
            owner[chosen],
            StoredPages(
                owner[clean],
                frames.stored_in[:high][clean],
                frames.stored_at[:high][clean],
                frames.stored_sum[:high][clean],
            ),
        )
        return self._underway

    def written(self, snapshot: PageSnapshot, begin: int, end: int) -> None:
        """Mark these pages as written, so that later changes need no clone."""
        self._free_or_unlock(snapshot.frames[begin:end])

    def published(self, snapshot: PageSnapshot, sums: NDArray[np.uint32]) -> None:
        """Record where the pages of a published checkpoint are stored, with their checksums."""
        self._free_or_unlock(snapshot.frames)
        frames = self.frames
        same = frames.owner[snapshot.frames] == snapshot.ids
        chosen = snapshot.frames[same]
        frames.stored_in[chosen] = snapshot.sequence
        frames.stored_at[chosen] = np.flatnonzero(same)
        frames.stored_sum[chosen] = sums[same]
        self._underway = None

    def cancelled(self, snapshot: PageSnapshot) -> None:
        """Forget a checkpoint that will not exist. Its pages count as changed again."""
        self._free_or_unlock(snapshot.frames)
        same = self.frames.owner[snapshot.frames] == snapshot.ids
        self.frames.flags[snapshot.frames[same]] |= DIRTY
        self._underway = None

    def _free_or_unlock(self, chosen: FrameNumbers) -> None:
        flags = self.frames.flags[chosen]
        locked = flags & READ_ONLY != 0
        retired = locked & (flags & RETIRED != 0)
        self.frames.give_back(chosen[retired])
        self.frames.flags[chosen[locked & ~retired]] &= ~np.uint8(READ_ONLY)

    # -- events of other threads -------------------------------------------------------------------

    def post(self, event: Callable[[], None]) -> None:
        """Queue `event` for the owning thread to call in `settle`. The only method for other threads."""
        self._posted.append(event)

    def settle(self) -> None:
        """Handle the events that other threads have posted. Structures call this before each change."""
        while self._posted:
            self._posted.popleft()()

    # -- recovery ----------------------------------------------------------------------------------

    def adopt_sets(self, sets: Collection[tuple[str, int]]) -> None:
        """Create a checkpoint's page sets, still without pages. Raises StateError if a name is taken."""
        for name, number in sets:
            if name in self._sets or number in self._by_number:
                raise StateError(f"page set {name} of the checkpoint is there already; load before creating")
            self._sets[name] = self._by_number[number] = PageSet(
                self.frames, name, number, self.settle, self._secret
            )

    def adopt_pages(self, first_frame: int, ids: Words, stored_in: int, sums: NDArray[np.uint32]) -> None:
        """Register pages in consecutive frames. The id NOBODY marks a page that is not needed."""
        frames = np.arange(first_frame, first_frame + len(ids), dtype=np.int32)
        needed = ids != NOBODY
        self.frames.give_back(frames[~needed])
        chosen = frames[needed]
        self.frames.owner[chosen] = ids[needed]
        self.frames.flags[chosen] = 0
        self.frames.stored_in[chosen] = stored_in
        self.frames.stored_at[chosen] = np.flatnonzero(needed)
        self.frames.stored_sum[chosen] = sums[needed]
        numbers = ids[needed] >> 32
        for number in np.unique(numbers):
            of_set = numbers == number
            self._by_number[int(number)].adopt(ids[needed][of_set] & 0xFFFF_FFFF, chosen[of_set])

    def adopted(self) -> None:
        """Finish a recovery, after all pages are registered."""
        for each in self._sets.values():
            each.adopted()


def _memory_of_machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
