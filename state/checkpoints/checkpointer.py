"""Write checkpoints of a page manager's pages while the pages change, and recover them (SGuard 4.4 and 5)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from peacefs.protocol.errors import (
    BadRequest,
    CheckpointCancelled,
    CheckpointDamaged,
    FileNotFound,
    PeacefsError,
    StateError,
)
from peacefs.protocol.limits import state_generations_max
from peacefs.state.kernels.checksums import sums_of
from peacefs.state.pages.frames import FrameNumbers
from peacefs.state.pages.manager import PageManager
from peacefs.state.pages.snapshot import PageSnapshot

from . import index as indexes
from .loader import Loaded, Loader
from .outcome import PreparedCheckpoint, PublishedPages, RunningCheckpoint
from .reserve import Reserve
from .standby_thread import NoThread, PageWriter, StandbyThread
from .store import CheckpointStore, PendingWrite, WriteRequest

# Number of checkpoints kept per unit.
state_checkpoints_kept_default: Final = 2
# Interval in which a checkpoint that waits for its turn checks whether it was cancelled.
state_turn_poll_s: Final = 0.05


log = logging.getLogger("peacefs.state")

_WRITER = "peacefs-state-checkpoint"


class Checkpointer:
    """Writes checkpoints of one unit, one at a time, and loads them. Use it from the pages' own thread.

    A checkpoint contains all page sets of the manager, or only `page_sets`. It writes only pages that changed
    since the last checkpoint; for the others it refers to at most `generations_max - 1` older checkpoints. The
    last `keep` checkpoints of the unit are kept. With None all are kept, and somebody else removes them.
    """

    def __init__(
        self,
        pages: PageManager,
        store: CheckpointStore,
        unit: str,
        *,
        page_sets: Collection[str] | None = None,
        generations_max: int = state_generations_max,
        keep: int | None = state_checkpoints_kept_default,
        reserve: bool = True,
        in_background: bool = True,
    ) -> None:
        """With `reserve`, allocate memory for clones in advance: as much as the pages use.

        Without `in_background`, a checkpoint is written in the call that starts it, without a thread.
        """
        if generations_max < 1 or (keep is not None and keep < 1):
            raise BadRequest(f"generations_max is {generations_max} and keep is {keep}: both must be at least 1")
        if unit in ("", ".", "..") or "/" in unit or "\0" in unit:
            raise BadRequest(f"{unit!r} cannot name checkpoints: it becomes a part of file names")
        self._pages = pages
        self._store = store
        self._unit = unit
        self._page_sets = page_sets
        self._generations_max = generations_max
        self._keep = keep
        self._last: int | None = None
        self._next: int | None = None
        #: Number of pages that each checkpoint has stored, for the checkpoints whose pages the last one needs.
        self._stored_counts: dict[int, int] = {}
        self._running: RunningCheckpoint | None = None
        self._given_up: PendingWrite | None = None
        self._news = threading.Event()
        self._reserve = Reserve(pages.frames) if reserve else None
        self._in_background = in_background
        self._writer: PageWriter | None = self._new_writer()

    @property
    def idle(self) -> bool:
        """True if no checkpoint is being written, so that another one may begin."""
        self._pages.settle()
        return self._running is None

    @property
    def reserved(self) -> bool:
        """True if memory for the next checkpoint's clones is allocated, as far as the machine has it."""
        return self._reserve is None or self._reserve.ready

    # -- writing -----------------------------------------------------------------------------------

    def begin(self, *, full: bool = False, patience_s: float | None = None) -> RunningCheckpoint:
        """Begin a checkpoint of the present pages and return at once. The pages may be changed meanwhile.

        With `full`, write all pages, even if they are stored already. If the turn to write is more than
        `patience_s` away, cancel the checkpoint, so that no page is cloned while it waits; the next checkpoint
        keeps the place in the queue. Raises StateError while another checkpoint is under way.
        """
        return self.start(self.prepare(full=full), patience_s=patience_s)

    def prepare(
        self, sequence: int | None = None, *, full: bool = False, flush: Callable[[], None] = lambda: None
    ) -> PreparedCheckpoint:
        """Capture the present pages, to be written by `start` or dropped by `cancel`.

        This is the pause of a checkpoint. It includes `flush`, which writes data kept outside the pages into them.
        Until `start`, nothing is written and changed pages are cloned. With a `sequence`, the store is not asked
        for the last one. Raises StateError while another checkpoint is under way, or if the sequence is too low.
        """
        self._pages.settle()
        if sequence is None:
            if self._next is None:
                self._next = max(self._store.sequences(self._unit), default=0) + 1
            sequence = self._next
        elif sequence < (self._next or 0):
            raise StateError(
                f"checkpoint {sequence} of {self._unit} comes after {self._next}: give a higher number"
            )
        begun_s = perf_counter()
        flush()
        snapshot = self._pages.prepare(
            sequence,
            self._page_sets,
            full=full or self._last is None,
            generations_max=self._generations_max,
            stored_counts=self._stored_counts,
        )
        self._next = sequence + 1
        return PreparedCheckpoint(snapshot, perf_counter() - begun_s)

    def start(self, prepared: PreparedCheckpoint, *, patience_s: float | None = None) -> RunningCheckpoint:
        """Begin to write the prepared checkpoint and return at once. `patience_s` is as in `begin`."""
        snapshot = prepared.snapshot
        running = RunningCheckpoint(snapshot.sequence, prepared.pause_s, self._pages.settle)
        self._running = running
        self._pages.frames.wait_for_room = self._wait_for_room
        given_up, self._given_up = self._given_up, None
        task = (running, snapshot, self._last, dict(self._stored_counts), given_up, patience_s)
        if self._writer is None:
            self._writer = self._new_writer()
        self._writer.put(lambda: self._write(*task))
        return running

    def _new_writer(self) -> PageWriter:
        return StandbyThread(_WRITER) if self._in_background else NoThread()

    def cancel(self, prepared: PreparedCheckpoint) -> None:
        """Drop a checkpoint that was prepared and not started."""
        self._pages.cancelled(prepared.snapshot)

    def checkpoint(self, *, full: bool = False, timeout_s: float | None = None) -> PublishedPages:
        """Write a checkpoint and wait until it is published. If it fails, raise the reason; the pages are
        unchanged.
        """
        return self.begin(full=full).result(timeout_s)

    def _write(
        self,
        running: RunningCheckpoint,
        snapshot: PageSnapshot,
        source: int | None,
        stored_counts: dict[int, int],
        given_up: PendingWrite | None,
        patience_s: float | None,
    ) -> None:
        """Write a checkpoint on the writer's thread, and post its events to the manager."""
        pending: PendingWrite | None = None
        try:
            sums = sums_of(self._pages.frames.words, snapshot.frames)
            referred = [int(each) for each in np.unique(snapshot.kept.stored_in)]
            request = WriteRequest(
                self._unit,
                snapshot.sequence,
                [self._pages.frames.buffer(first, count) for first, count in _runs(snapshot.frames)],
                indexes.encode(self._unit, snapshot, sums, stored_counts),
                referred,
                source,
                lambda begin, end: self._written(snapshot, begin, end),
            )
            pending = self._store.submit(request, given_up)
            running.attach(pending)
            self._wait(running, pending, patience_s)
        except BaseException as error:
            waiting = pending if isinstance(error, CheckpointCancelled) else None
            self._post(lambda: self._failed(snapshot, waiting))
            running.fail(error)
            if not isinstance(error, Exception):
                raise
            return
        counts = {each: stored_counts[each] for each in referred} | {snapshot.sequence: len(snapshot.ids)}
        self._post(lambda: self._published(snapshot, sums, counts))
        running.succeed(
            PublishedPages(
                snapshot.sequence,
                len(snapshot.ids),
                len(snapshot.kept.ids),
                snapshot.length,
                running.pause_s,
                self._prune(),
            )
        )

    def _wait(self, running: RunningCheckpoint, pending: PendingWrite, patience_s: float | None) -> None:
        while True:
            try:
                pending.wait(state_turn_poll_s if patience_s is not None else None)
                return
            except TimeoutError:
                away_s = pending.expected_start_s
                if patience_s is not None and away_s > patience_s and pending.cancel():
                    name = f"checkpoint {running.sequence} of {self._unit}"
                    raise CheckpointCancelled(f"{name} was cancelled: its turn is {away_s:.1f} s away") from None

    def _prune(self) -> tuple[int, ...]:
        if self._keep is None:
            return ()
        gone = self._store.sequences(self._unit)[: -self._keep]
        for number, sequence in enumerate(gone):
            try:
                self._store.remove(self._unit, sequence)
            except (PeacefsError, OSError) as error:
                log.warning(
                    "checkpoint %s of %s could not be deleted and stays for now: %s", sequence, self._unit, error
                )
                return tuple(gone[:number])
        return tuple(gone)

    # -- events of the writer's thread, handled on the owner's thread ---------------------------------

    def _written(self, snapshot: PageSnapshot, begin: int, end: int) -> None:
        size = snapshot.page_bytes
        self._post(lambda: self._pages.written(snapshot, -(-begin // size), end // size))

    def _published(self, snapshot: PageSnapshot, sums: NDArray[np.uint32], counts: dict[int, int]) -> None:
        self._pages.published(snapshot, sums)
        self._last, self._stored_counts, self._running = snapshot.sequence, counts, None

    def _failed(self, snapshot: PageSnapshot, waiting: PendingWrite | None) -> None:
        self._pages.cancelled(snapshot)
        self._running, self._given_up = None, waiting

    def _post(self, event: object) -> None:
        assert callable(event), "an event is called"
        self._pages.post(event)
        self._news.set()

    def _wait_for_room(self) -> bool:
        """Wait on the owner's thread until pages are written. Return False if none are being written."""
        if self._running is None:
            return False
        self._news.clear()
        if self.idle:
            # The write has just ended, and may have freed frames.
            return True
        if self._pages.frames.used == self._pages.frames.count:
            self._news.wait()
            self._pages.settle()
        return True

    # -- recovery ----------------------------------------------------------------------------------

    def load(self, sequence: int | None = None) -> Loaded | None:
        """Load the latest sound checkpoint into the manager. Return None if there is no checkpoint at all.

        Call this before structures are created, which then find their old content. Nobody else may be writing the
        unit. A damaged checkpoint is logged, and the one before it is tried, unless `sequence` asks for one
        checkpoint. Raises CheckpointDamaged if none is sound, FileNotFound if the sequence does not exist,
        StateError if page sets already exist.
        """
        if self._pages.names:
            raise StateError("there are page sets already; load before creating structures")
        self._store.remove_left_over(self._unit)
        present = self._store.sequences(self._unit)
        if sequence is not None and sequence not in present:
            raise FileNotFound(f"there is no checkpoint {sequence} of {self._unit}")
        self._next = max(present, default=0) + 1
        loader = Loader(self._pages, self._store, self._unit)
        damage: list[CheckpointDamaged] = []
        for each in [sequence] if sequence is not None else reversed(present):
            try:
                loaded = loader.load(each, tuple(damage))
            except CheckpointDamaged as error:
                log.error("checkpoint %s of %s could not be loaded: %s", each, self._unit, error.message)
                damage.append(error)
                continue
            self._last, self._stored_counts = each, loaded.stored_counts
            return loaded
        if damage:
            raise CheckpointDamaged(f"no checkpoint of {self._unit} is sound; the latest: {damage[0].message}")
        return None

    def close(self) -> None:
        """Cancel a checkpoint that is being written, and wait until its write has stopped."""
        if self._reserve is not None:
            self._reserve.close()
        running = self._running
        if running is not None:
            running.cancel()
            with suppress(Exception):
                running.result()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._pages.settle()


def _runs(frames: FrameNumbers) -> list[tuple[int, int]]:
    """Join consecutive frames into pieces that are released one after the other."""
    if not len(frames):
        return []
    cuts = np.flatnonzero(np.diff(frames) != 1) + 1
    begins = np.concatenate([[0], cuts])
    ends = np.concatenate([cuts, [len(frames)]])
    return [(int(frames[begin]), int(end - begin)) for begin, end in zip(begins, ends, strict=True)]
