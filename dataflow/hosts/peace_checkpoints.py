"""Checkpoints of units in peacefs, written by the I/O service, so that Peace decides who writes when."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.logs.peace_segments import PeaceSegments
from peacefs.dataflow.logs.segments import SegmentStore
from peacefs.protocol.errors import FileNotFound
from peacefs.state.checkpoints.peace_store import PeaceStore
from peacefs.state.checkpoints.store import CheckpointStore as PageStore

from .checkpoint_store import LOGS, RECORD, name_of


@dataclass
class PeaceCheckpoints:
    """Names a directory of a cluster; it is connected to in each process when it is first used. Thread-safe."""

    coordinator: str
    directory: str
    user: str | None = None
    _files: PeaceFileSystem | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def pages(self) -> PageStore:
        return PeaceStore(self._connected(), root=self.directory)

    def segments(self) -> SegmentStore:
        return PeaceSegments(self._connected(), f"{self.directory}/{LOGS}")

    def record(self, record: bytes) -> None:
        files = self._connected()
        staged = f"{self.directory}/.{RECORD}"
        files.write(staged, record, overwrite=True)
        files.rename(staged, f"{self.directory}/{RECORD}", overwrite=True)

    def recorded(self) -> bytes | None:
        try:
            return self._connected().read(f"{self.directory}/{RECORD}")
        except FileNotFound:
            return None

    def replicas(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, int]:
        files = self._connected()
        held: Counter[str] = Counter()
        for entry in files.list(f"{self.directory}/{name_of(unit)}-{sequence_of(checkpoint)}"):
            for chunk in files.channels.calls.open(entry.path, files.user).layout.chunks:
                held.update({hop.node: chunk.length for hop in chunk.replicas})
        return held

    def close(self) -> None:
        with self._lock:
            if self._files is not None:
                self._files.close()
                self._files = None

    def __getstate__(self) -> tuple[str, str, str | None]:
        return self.coordinator, self.directory, self.user

    def __setstate__(self, state: tuple[str, str, str | None]) -> None:
        self.coordinator, self.directory, self.user = state
        self._files, self._lock = None, threading.Lock()

    def _connected(self) -> PeaceFileSystem:
        with self._lock:
            if self._files is None:
                self._files = PeaceFileSystem(self.coordinator, user=self.user)
            return self._files
