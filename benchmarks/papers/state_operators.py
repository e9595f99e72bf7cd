"""Operators whose state is checkpointed in different ways: those of SGuard 6.1.3, and ways in use today.

All keep count, minimum and maximum by an 8-byte key, 32 bytes per record, and take batches of a few tuples. Each
has as many parts as the operator was split into. A part is checkpointed separately and durably into a file.
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from peacefs.state import Checkpointer, DirectoryStore, PageManager, UnorderedMap

SCHEMA = pa.schema([("key", pa.int64()), ("count", pa.int64()), ("low", pa.int64()), ("high", pa.int64())])
RECORD_BYTES = 32
_LOW, _HIGH = 1 << 62, -(1 << 62)
Numbers = NDArray[np.int64]


class Part(Protocol):
    """One part of an operator."""

    def apply(self, keys: Numbers, times: Numbers) -> None: ...

    def checkpoint(self) -> None:
        """Begin a checkpoint. Return when the operator may continue."""
        ...

    def wait(self) -> None:
        """Wait until the checkpoint is on the disk."""
        ...

    def close(self) -> None: ...


class Pages:
    """SGuard's way: write pages while the operator changes clones of them."""

    def __init__(self, keys: Numbers, directory: Path, name: str, *, checkpoints: bool = True) -> None:
        self._pages = PageManager()
        self._map = UnorderedMap.create(self._pages.page_set("groups"), SCHEMA, "key")
        for begin in range(0, len(keys), 65_536):
            self.apply(keys[begin : begin + 65_536], keys[begin : begin + 65_536])
        self._checkpointer = Checkpointer(self._pages, DirectoryStore(directory), name) if checkpoints else None
        self._running: Any = None

    @property
    def memory_bytes(self) -> int:
        return self._pages.memory_bytes

    def apply(self, keys: Numbers, times: Numbers) -> None:
        self._map.aggregate(keys, {"count": ("add", 1), "low": ("min", times), "high": ("max", times)})

    def checkpoint(self) -> None:
        if self._checkpointer is not None:
            self._running = self._checkpointer.begin()

    def wait(self) -> None:
        if self._running is not None:
            self._running.result()
        while self._checkpointer is not None and not self._checkpointer.reserved:
            time.sleep(0.01)

    def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()

    def to_arrow(self) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as stream:
            for batch in self._map.scan():
                stream.write(batch)
        return sink.getvalue()


class _Serialised:
    """Serialises while the operator is paused. If asynchronous, a thread writes the result."""

    def __init__(self, serialise: Callable[[], Any], path: Path, *, asynchronous: bool) -> None:
        self._serialise, self._path, self._asynchronous = serialise, path, asynchronous
        self._thread: threading.Thread | None = None

    def checkpoint(self) -> None:
        data = self._serialise()
        self._thread = threading.Thread(target=_write, args=(self._path, data))
        self._thread.start()
        if not self._asynchronous:
            self._thread.join()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()


class Arrow:
    """The same map, written as Arrow IPC."""

    def __init__(self, keys: Numbers, directory: Path, name: str, *, asynchronous: bool) -> None:
        self._held = Pages(keys, directory, name, checkpoints=False)
        self._saved = _Serialised(self._held.to_arrow, directory / name, asynchronous=asynchronous)
        self.apply, self.checkpoint, self.wait = self._held.apply, self._saved.checkpoint, self._saved.wait

    def close(self) -> None:
        self.wait()


class Pickle:
    """A dict of lists, as Python programs use, pickled."""

    def __init__(self, keys: Numbers, directory: Path, name: str, *, asynchronous: bool) -> None:
        self._held: dict[int, list[int]] = {key: [0, _LOW, _HIGH] for key in keys.tolist()}
        self._saved = _Serialised(lambda: pickle.dumps(self._held, 5), directory / name, asynchronous=asynchronous)
        self.checkpoint, self.wait = self._saved.checkpoint, self._saved.wait

    def apply(self, keys: Numbers, times: Numbers) -> None:
        held = self._held
        for key, moment in zip(keys.tolist(), times.tolist(), strict=True):
            group = held[key]
            group[0] += 1
            group[1] = min(group[1], moment)
            group[2] = max(group[2], moment)

    def close(self) -> None:
        self.wait()


class Fork:
    """The same map, written by a forked child from its copy of the memory, as Redis does."""

    def __init__(self, keys: Numbers, directory: Path, name: str) -> None:
        self._held = Pages(keys, directory, name, checkpoints=False)
        self._path = directory / name
        self._child: int | None = None
        self.apply = self._held.apply

    def checkpoint(self) -> None:
        self._child = os.fork()
        if self._child == 0:
            # Use only system calls here: locks of other threads are in an unknown state.
            status = 1
            try:
                _write(self._path, self._held.to_arrow())
                status = 0
            finally:
                os._exit(status)

    def wait(self) -> None:
        if self._child is not None:
            _, status = os.waitpid(self._child, 0)
            self._child = None
            assert status == 0, "the child has not written its copy"

    def close(self) -> None:
        self.wait()


class Rocks:
    """RocksDB with the state in memtables and files. A checkpoint flushes and hard-links them."""

    _GROUP = struct.Struct("<qqq")
    _KEY = struct.Struct(">q")

    def __init__(self, keys: Numbers, directory: Path, name: str) -> None:
        rocksdict: Any = importlib.import_module("rocksdict")

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        # As embedded state stores do: durable at checkpoints and not at each write.
        options.set_write_buffer_size(64 << 20)
        self._writes = rocksdict.WriteOptions()
        self._writes.disable_wal = True
        self._rocks = rocksdict
        self._db = rocksdict.Rdict(str(directory / f"{name}-db"), options)
        self._db.set_write_options(self._writes)
        self._directory, self._name, self._number = directory, name, 0
        self._thread: threading.Thread | None = None
        empty = self._GROUP.pack(0, _LOW, _HIGH)
        for begin in range(0, len(keys), 50_000):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key in keys[begin : begin + 50_000].tolist():
                batch.put(self._KEY.pack(key), empty)
            self._db.write(batch, self._writes)

    def apply(self, keys: Numbers, times: Numbers) -> None:
        names = [self._KEY.pack(key) for key in keys.tolist()]
        fresh: dict[bytes, tuple[int, int, int]] = {}
        batch = self._rocks.WriteBatch(raw_mode=True)
        for name, found, moment in zip(names, self._db.get(names), times.tolist(), strict=True):
            count, low, high = fresh.get(name) or self._GROUP.unpack(found)
            fresh[name] = (count + 1, min(low, moment), max(high, moment))
        for name, group in fresh.items():
            batch.put(name, self._GROUP.pack(*group))
        self._db.write(batch, self._writes)

    def checkpoint(self) -> None:
        self._number += 1
        self._thread = threading.Thread(target=self._save, args=(f"{self._name}-{self._number}",))
        self._thread.start()

    def _save(self, name: str) -> None:
        self._rocks.Checkpoint(self._db).create_checkpoint(str(self._directory / name))

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        self.wait()
        self._db.close()


def _write(path: Path, data: Any) -> None:
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(sink, left) :]
        os.fsync(sink)
    finally:
        os.close(sink)


#: Table 7's names for these ways.
WAYS: dict[str, Callable[[Numbers, Path, str], Part]] = {
    "no checkpoints": lambda keys, directory, name: Pages(keys, directory, name, checkpoints=False),
    "pages": Pages,
    "Arrow IPC, synchronous": lambda keys, directory, name: Arrow(keys, directory, name, asynchronous=False),
    "Arrow IPC, asynchronous": lambda keys, directory, name: Arrow(keys, directory, name, asynchronous=True),
    "pickle, synchronous": lambda keys, directory, name: Pickle(keys, directory, name, asynchronous=False),
    "pickle, asynchronous": lambda keys, directory, name: Pickle(keys, directory, name, asynchronous=True),
    "forked child": Fork,
    "RocksDB": Rocks,
}
