"""The files of the log, its segments. One thread appends, with one write and one sync per entry.

With a journal, there is no sync: after a power cut, a start reads lost entries from the journal.

A new segment is filled with zeros. So a sync writes no metadata of the file system, and a full disk is found when
a segment is created, not in the middle of an entry. The name of a segment ends with the number of its first entry.

A crash can tear only the last entry of the last segment, which was not acknowledged. A damaged entry followed by
an intact one was acknowledged: then reading stops with LogDamaged (decision 26).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64_digest

from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import MIB
from peacefs.runtime import private_files
from peacefs.runtime.disk_files import sync_directory

from .entry import ALIGNMENT, HEAD_BYTES, MARK, LogEntry, pack, size_of, unpack, unpack_alone

log_segment_bytes: Final = MIB

_MAGIC: Final = b"pfslog01"
#: The mark, a hash of the cluster id, the number of the first entry, the chain before it, and a random secret that
#: seeds the checksums of entries. The header's checksum follows these fields.
_SEGMENT_HEAD: Final = struct.Struct(">8s16sQQQ")
_FIRST_AT: Final = 64
_ENDING: Final = ".log-"


class LogFull(Exception):
    """The disk is full. The entry was not appended."""


class LogMoved(Exception):
    """The active segment is no longer at its path."""


class LogDamaged(Exception):
    """Acknowledged entries cannot be read."""


class Position(NamedTuple):
    """An entry in the log: its number and its checksum in the chain."""

    number: int
    chain: int


class SegmentLog:
    """Appends to the log of one store. Used by one thread at a time."""

    def __init__(self, store: Path, cluster_id: str, last: Position, *, syncs_each: bool = True) -> None:
        """`last` is the last entry of the log. The next entry begins a new segment.

        Without `syncs_each`, entries are durable only after `begin_sync`.
        """
        self._store = store
        self._identity = identity_of(cluster_id)
        self._last = last
        self._syncs_each = syncs_each
        self.synced = last.number
        self._descriptor = -1
        self._secret = 0
        self._at = 0
        self._size = 0
        #: The active segment; None before the first entry.
        self.path: Path | None = None
        self._status: os.stat_result | None = None

    def append(self, number: int, content: bytes) -> int:
        """Append an entry and return its checksum in the chain.

        Raises LogFull, with nothing changed, if there is no room. After OSError the entry may be in the log.
        """
        assert number == self._last.number + 1, f"entry {number} follows {self._last.number}"
        if self._at + size_of(content) > self._size:
            self._begin_segment(number, size_of(content))
        data, chain = pack(number, self._last.chain, content, self._secret)
        try:
            _write_all(self._descriptor, data, self._at)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LogFull(str(error)) from error
            raise
        if self._syncs_each:
            os.fdatasync(self._descriptor)
            self.synced = number
        self._at += len(data)
        self._last = Position(number, chain)
        return chain

    def begin_sync(self) -> Callable[[], None]:
        """Return a function that syncs all entries appended so far. Any thread may call that function.

        Do not call `begin_sync` during an append. Both raise OSError.
        """
        number = self._last.number
        if self.synced >= number:
            return lambda: None
        # Use a duplicate descriptor, because beginning a new segment closes the old segment's.
        descriptor = os.dup(self._descriptor)

        def sync() -> None:
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            self.synced = max(self.synced, number)

        return sync

    def _begin_segment(self, number: int, needed: int) -> None:
        path = segment_path(self._store, number)
        size = max(log_segment_bytes, _FIRST_AT + needed)
        staged = path.with_name(path.name + ".new")
        try:
            private_files.create_file(staged)
            descriptor = os.open(staged, os.O_RDWR | os.O_CLOEXEC)
            try:
                secret = int.from_bytes(os.urandom(8))
                head = _SEGMENT_HEAD.pack(_MAGIC, self._identity, number, self._last.chain, secret)
                _write_all(descriptor, (head + xxh3_64_digest(head)).ljust(_FIRST_AT, b"\0"), 0)
                _write_zeros(descriptor, _FIRST_AT, size)
                os.fsync(descriptor)
                staged.rename(path)
                sync_directory(str(path.parent))
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            with contextlib.suppress(OSError):
                staged.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LogFull(str(error)) from error
            raise
        if self._descriptor >= 0:
            if not self._syncs_each:
                os.fdatasync(self._descriptor)
            os.close(self._descriptor)
        self._descriptor, self._secret, self._at, self._size = descriptor, secret, _FIRST_AT, size
        self.path = path
        self._status = os.fstat(descriptor)

    def check(self) -> None:
        """Raise LogMoved if the active segment is no longer at its path."""
        if self.path is None or self._status is None:
            return
        try:
            is_there = os.path.samestat(os.stat(self.path), self._status)  # noqa: PTH116
        except OSError:
            is_there = False
        if not is_there:
            raise LogMoved(f"{self.path} was moved, deleted or replaced while this coordinator had it open")

    def drop_before(self, number: int, kept_bytes: int = 0) -> None:
        """Delete segments that contain only entries below `number`, but keep the last `kept_bytes` of them.

        Raises OSError.
        """
        segments = list_segments(self._store)
        room = kept_bytes
        for (_, path), (following, _) in reversed(list(itertools.pairwise(segments))):
            if following > number or path == self.path:
                continue
            room -= path.stat().st_size
            if room < 0:
                path.unlink()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def segment_path(store: Path, number: int) -> Path:
    return store.with_name(f"{store.name}{_ENDING}{number:016d}")


def list_segments(store: Path) -> list[tuple[int, Path]]:
    """Return the number of the first entry and the path of each segment, in order."""
    found = []
    for path in store.parent.glob(f"{store.name}{_ENDING}*"):
        ending = path.name.removeprefix(store.name + _ENDING)
        if ending.isdigit():
            found.append((int(ending), path))
    return sorted(found)


def read_entries(store: Path, cluster_id: str, after: Position) -> Iterator[LogEntry]:
    """Yield the entries after `after`, in order, to the end of the log.

    Raises LogDamaged if an acknowledged entry is missing or damaged, and StartupError if a file cannot be read or
    belongs to another cluster.
    """
    last = after
    segments = list_segments(store)
    for at, (first, path) in enumerate(segments):
        following = segments[at + 1][0] if at + 1 < len(segments) else None
        if following is not None and following <= last.number + 1:
            continue
        if first > last.number + 1:
            raise LogDamaged(f"{path} begins with entry {first}, and entry {last.number + 1} is nowhere")
        for entry in _entries_of(path, first, cluster_id, last):
            if entry.number == last.number and entry.chain != last.chain:
                raise LogDamaged(f"entry {entry.number} of {path} is not the one that the store has")
            if entry.number > last.number:
                yield entry
                last = Position(entry.number, entry.chain)
        if following is not None and following > last.number + 1:
            raise LogDamaged(f"{path} ends with entry {last.number}, and entry {following} follows elsewhere")


def sync_entries(store: Path) -> None:
    """Sync the last segments. After a kill, the last entry may be only in the page cache. Raises OSError."""
    for _, path in list_segments(store)[-2:]:
        with path.open("rb") as segment:
            os.fsync(segment.fileno())


def _entries_of(path: Path, first: int, cluster_id: str, last: Position) -> Iterator[LogEntry]:
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    packed = data[: _SEGMENT_HEAD.size]
    if len(data) < _FIRST_AT or data[_SEGMENT_HEAD.size :][:8] != xxh3_64_digest(packed):
        raise LogDamaged(f"{path} does not begin as a segment of the log does")
    mark, identity, of_first, chain, secret = _SEGMENT_HEAD.unpack(packed)
    if mark != _MAGIC or of_first != first:
        raise LogDamaged(f"{path} does not begin as a segment of the log does")
    if identity != identity_of(cluster_id):
        raise StartupError(f"{path} is of the metadata of another cluster. Nothing was changed; move it away")
    if first == last.number + 1 and chain != last.chain:
        raise LogDamaged(f"{path} does not follow entry {last.number}")
    number, at = first, _FIRST_AT
    while (entry := unpack(data, at, number, chain, secret)) is not None:
        yield entry
        number, chain, at = entry.number + 1, entry.chain, at + size_of(entry.content)
    proof = _sound_behind(data, at, number, secret)
    if proof is not None:
        raise LogDamaged(f"entry {number} of {path} is damaged, and entry {proof} shows that it was acknowledged")


def _sound_behind(data: memoryview, at: int, number: int, secret: int) -> int | None:
    """Search after offset `at` for an intact entry with a number above `number`. Return its number.

    Such an entry proves that entry `number` was synced, because an entry is written only after the previous sync.
    """
    begin = at + ALIGNMENT
    while begin < len(data) - HEAD_BYTES:
        begin = _next_mark(data, begin)
        if begin < 0:
            return None
        entry = unpack_alone(data, begin, secret)
        if entry is not None and entry.number > number:
            return entry.number
        begin += ALIGNMENT
    return None


def _next_mark(data: memoryview, begin: int) -> int:
    """Return the next offset at which an entry may begin; -1 if there is none."""
    obj = data.obj
    assert isinstance(obj, bytes)
    while True:
        found = obj.find(MARK, begin)
        if found < 0 or found % ALIGNMENT == 0:
            return found
        begin = found + 1


def identity_of(cluster_id: str) -> bytes:
    """Return the bytes that identify a cluster in the files beside its store."""
    return hashlib.blake2b(str(cluster_id).encode(), digest_size=16).digest()


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def _write_zeros(descriptor: int, begin: int, end: int) -> None:
    zeros = bytes(min(end - begin, MIB))
    while begin < end:
        begin += os.pwrite(descriptor, zeros[: end - begin], begin)
