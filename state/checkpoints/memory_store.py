"""Checkpoints in this process's memory, for tests and experiments."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from peacefs.protocol.errors import CheckpointCancelled, CheckpointDamaged, FileAlreadyExists, FileNotFound

from .store import PendingWrite, WriteRequest


class _Stored:
    def __init__(self, index: bytes, pages: dict[int, bytearray]) -> None:
        self.index = index
        self.pages = pages


class MemoryStore:
    """A `CheckpointStore` in memory. With `held` set, submitted checkpoints wait for `release`."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], _Stored] = {}
        #: If True, checkpoints wait as if others were ahead of them, with an expected wait of `away_s`.
        self.held = False
        self.away_s = 60.0
        self.submitted: list[_PendingInMemory] = []

    def sequences(self, unit: str) -> list[int]:
        return sorted(sequence for of, sequence in list(self.stored) if of == unit)

    def submit(self, request: WriteRequest, instead_of: PendingWrite | None = None) -> PendingWrite:
        pending = _PendingInMemory(self, request, instead_of)
        self.submitted.append(pending)
        if not self.held:
            pending.release()
        return pending

    def publish(self, request: WriteRequest) -> None:
        """Store a checkpoint. Raises FileAlreadyExists."""
        name = (request.unit, request.sequence)
        if name in self.stored:
            raise FileAlreadyExists(f"checkpoint {request.sequence} of {request.unit} exists")
        pages: dict[int, bytearray] = {}
        for each in request.referred:
            assert request.source is not None, "there is nothing to refer to"
            pages[each] = self.stored[request.unit, request.source].pages[each]
        own = bytearray()
        for run in request.runs:
            own += run
            request.written(len(own) - len(run), len(own))
        pages[request.sequence] = own
        self.stored[name] = _Stored(request.index, pages)

    def index(self, unit: str, sequence: int) -> bytes:
        if (unit, sequence) not in self.stored:
            raise FileNotFound(f"there is no checkpoint {sequence} of {unit}")
        return self.stored[unit, sequence].index

    def read_pages(self, unit: str, sequence: int, stored_in: int, target: memoryview) -> None:
        found = self.stored[unit, sequence].pages.get(stored_in)
        if found is None or len(found) != len(target):
            there = "not there" if found is None else f"{len(found)} bytes"
            raise CheckpointDamaged(f"pages of checkpoint {stored_in} of {unit} are {there}, not {len(target)}")
        target[:] = found

    def remove(self, unit: str, sequence: int) -> None:
        self.stored.pop((unit, sequence), None)

    def remove_left_over(self, unit: str) -> None:
        """Do nothing: nothing outlives its writer here."""


class _PendingInMemory:
    """A checkpoint that is published when the store or a test releases it."""

    def __init__(self, store: MemoryStore, request: WriteRequest, instead_of: PendingWrite | None) -> None:
        self._store = store
        self.request = request
        self.instead_of = instead_of
        self._outcome: Future[None] = Future()
        self._lock = threading.Lock()

    @property
    def expected_start_s(self) -> float:
        return 0.0 if self._outcome.done() else self._store.away_s

    def release(self) -> None:
        """Publish it now, unless it was cancelled."""
        with self._lock:
            if self._outcome.done():
                return
            try:
                self._store.publish(self.request)
            except Exception as error:
                self._outcome.set_exception(error)
            else:
                self._outcome.set_result(None)

    def wait(self, timeout_s: float | None = None) -> None:
        self._outcome.result(timeout_s)

    def cancel(self) -> bool:
        with self._lock:
            if not self._outcome.done():
                name = f"checkpoint {self.request.sequence} of {self.request.unit}"
                self._outcome.set_exception(CheckpointCancelled(f"{name} was cancelled"))
        return self._outcome.exception() is not None
