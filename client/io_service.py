"""The I/O service: checkpoints of a stream processor's units, written and read in parallel (SGuard, section 5).

with PeaceFileSystem("http://coordinator:9870") as files:
    service = IOService(files, workers=4, keep=3)
    service.write("orders-2", 17, pages)            # pages: any buffers, in order
    restored = service.read("orders-2")             # the latest
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from peacefs.protocol.errors import (
    BadRequest,
    CheckpointDamaged,
    FileAlreadyExists,
    FileNotFound,
    PeacefsError,
)
from peacefs.protocol.limits import (
    MIB,
    checkpoint_workers_default,
    checkpoint_workers_max,
    checksum_block_bytes,
    chunk_bytes_max,
    write_token_lifetime_s,
)

from .checkpoint.attempt import CheckpointAttempt, CheckpointTask
from .checkpoint.clock import CheckpointClock
from .checkpoint.manifest import (
    MANIFEST,
    Manifest,
    decode,
    directory_name,
    is_unfinished,
    sequence_of,
)
from .checkpoint.pages import Pages
from .checkpoint.pending import PendingCheckpoint as PendingCheckpoint
from .checkpoint.pending import Published
from .checkpoint.reader import CheckpointReader
from .control.values import FileStatus
from .filesystem import PeaceFileSystem

if TYPE_CHECKING:
    from typing_extensions import Buffer

checkpoint_manifest_bytes_max: Final = 64 * MIB


@dataclass(frozen=True)
class RestoredCheckpoint:
    """The pages of a checkpoint that was read, all in one buffer."""

    unit: str
    sequence: int
    pages: list[memoryview]


class IOService:
    """Checkpoints below `root`, each a directory `<unit>-<sequence>` that appears whole. Thread-safe.

    At most `workers` threads write a checkpoint, one file per thread, in chunks of `chunk_bytes`. The coordinator
    is told the total size first and grants each chunk. As many threads read a checkpoint. If `keep` is set,
    publishing a checkpoint deletes the unit's older ones. All methods raise classes of `peacefs.protocol.errors`.
    """

    def __init__(
        self,
        files: PeaceFileSystem,
        *,
        root: str = "/checkpoint",
        workers: int = checkpoint_workers_default,
        chunk_bytes: int = chunk_bytes_max,
        replication: int | None = None,
        keep: int | None = None,
    ) -> None:
        if not 0 < workers <= checkpoint_workers_max:
            raise BadRequest(f"{workers} workers are out of range: 1 to {checkpoint_workers_max}")
        if chunk_bytes % checksum_block_bytes or not 0 < chunk_bytes <= chunk_bytes_max:
            raise BadRequest(
                f"chunks of {chunk_bytes} bytes are out of range: "
                f"multiples of {checksum_block_bytes} up to {chunk_bytes_max}"
            )
        if keep is not None and keep < 1:
            raise BadRequest(f"keep {keep} would keep nothing: at least 1")
        self._files = files
        self._root = root.rstrip("/")
        self._workers = workers
        self._chunk_bytes = chunk_bytes
        self._replication = replication
        self._keep = keep

    # -- writing -----------------------------------------------------------------------------------

    def write(self, unit: str, sequence: int, pages: Sequence[Buffer]) -> Published:
        """Write and publish a checkpoint. If this raises, no part of the checkpoint exists.

        Raises FileAlreadyExists if the sequence exists, NoDatanodes, QuotaExceeded, BadRequest, ...
        """
        return self.submit(unit, sequence, pages).result()

    def clock(self, unit: str, period_s: float, *, size: int = 0, phase_s: float | None = None) -> CheckpointClock:
        """Return a clock for the unit's checkpoints of about `size` bytes, one every `period_s`.

        The coordinator proposes the phase, so that units do not write at the same time. `phase_s` sets it instead.
        """
        return CheckpointClock(self._files, f"{self._root}/{unit}", period_s, size=size, phase_s=phase_s)

    def submit(
        self,
        unit: str,
        sequence: int,
        pages: Sequence[Buffer],
        *,
        instead_of: PendingCheckpoint | None = None,
        files: Mapping[str, bytes] | None = None,
        references: Mapping[str, str] | None = None,
        written: Callable[[int, int], None] = lambda begin, end: None,
    ) -> PendingCheckpoint:
        """Start writing a checkpoint on its own threads. `pages` must not change until the write has finished.

        Parts of `pages` may change earlier: `written(begin, end)` is called, from any thread, once the bytes
        between these offsets are not read again. `files` are small files to add, by name. `references` maps names
        in the checkpoint to paths of existing files, whose data they share.

        A checkpoint that waits too long may be replaced by one of another size: `instead_of` is cancelled, and its
        age in the coordinator's queue is kept. Raises BadRequest for bad names, and FileAlreadyExists if
        `instead_of` was published already.
        """
        task = CheckpointTask(
            self._root,
            unit,
            sequence,
            Pages(pages, written),
            self._workers,
            self._chunk_bytes,
            self._replication,
            files or {},
            references or {},
        )
        # Build the task before cancelling anything, so that a bad name is refused first.
        path, asked_s = task.path, None
        if instead_of is not None:
            if not instead_of.cancel():
                raise FileAlreadyExists(f"{instead_of.path} was published before it could be cancelled")
            asked_s = instead_of.asked_s
        attempt = CheckpointAttempt(self._files, task, asked_s)
        return PendingCheckpoint(path, attempt, lambda: self._publish(attempt, path))

    def _publish(self, attempt: CheckpointAttempt, path: str) -> Published:
        manifest = attempt.run()
        if self._keep is None:
            return Published(path, manifest.length)
        try:
            pruned = self._prune(manifest.unit, self._keep, manifest.sequence)
        except PeacefsError as fault:
            return Published(path, manifest.length, prune_fault=fault)
        return Published(path, manifest.length, tuple(pruned))

    # -- reading -----------------------------------------------------------------------------------

    def sequences(self, unit: str) -> list[int]:
        """Return the checkpoints of a unit, ascending."""
        found = (sequence_of(entry.name, unit) for entry in self._directories())
        return sorted(sequence for sequence in found if sequence is not None)

    def read(self, unit: str, sequence: int | None = None) -> RestoredCheckpoint:
        """Read a checkpoint, by default the latest.

        At most two readers in the cluster read at one datanode. Raises FileNotFound, ChunkUnavailable, and
        CheckpointDamaged if the directory is no checkpoint.
        """
        if sequence is None:
            sequence = max(self.sequences(unit), default=None)
            if sequence is None:
                raise FileNotFound(f"there is no checkpoint of {unit} in {self._root or '/'}")
        directory = f"{self._root}/{directory_name(unit, sequence)}"
        manifest = self._manifest(directory)
        channels = self._files.channels
        opened = [channels.calls.open(f"{directory}/{part.name}", self._files.user) for part in manifest.parts]
        for part, found in zip(manifest.parts, opened, strict=True):
            if found.layout.length != part.length:
                raise CheckpointDamaged(
                    f"{directory}/{part.name} has {found.layout.length} bytes, the manifest says {part.length}"
                )
        # Allocate only after the lengths in the manifest were compared with the files.
        buffer = memoryview(bytearray(manifest.length))
        CheckpointReader(channels.driver, opened, buffer).run(self._workers)
        return RestoredCheckpoint(unit, sequence, _cut(buffer, manifest.page_sizes()))

    def read_into(self, paths: Sequence[str], target: memoryview) -> None:
        """Read files, one after the other, into a buffer, with the grants and threads that `read` uses.

        Raises FileNotFound, ChunkUnavailable, and CheckpointDamaged if the files do not fill the buffer exactly.
        """
        channels = self._files.channels
        opened = [channels.calls.open(path, self._files.user) for path in paths]
        length = sum(each.layout.length for each in opened)
        if length != len(target):
            raise CheckpointDamaged(f"{', '.join(paths)}: {length} bytes are there, not {len(target)}")
        CheckpointReader(channels.driver, opened, target).run(self._workers)

    def _manifest(self, directory: str) -> Manifest:
        path = f"{directory}/{MANIFEST}"
        with self._files.open(path) as source:
            if source.length > checkpoint_manifest_bytes_max:
                raise CheckpointDamaged(f"{path} has {source.length} bytes, more than any manifest")
            return decode(source.read(), path)

    # -- pruning -----------------------------------------------------------------------------------

    def prune(self, unit: str, keep: int) -> list[int]:
        """Delete all but the latest `keep` checkpoints of a unit, and the files of unfinished attempts.

        Return the deleted sequences, ascending. An unfinished attempt is deleted once its write token has expired.
        """
        if keep < 1:
            raise BadRequest(f"keep {keep} would keep nothing: at least 1")
        return self._prune(unit, keep, None)

    def _prune(self, unit: str, keep: int, latest: int | None) -> list[int]:
        """Delete old checkpoints up to `latest`. A unit that restarted at lower numbers keeps its new ones."""
        entries = self._directories()
        numbered = {sequence_of(entry.name, unit) for entry in entries}
        present = sorted(each for each in numbered if each is not None and (latest is None or each <= latest))
        gone = present[:-keep]
        for sequence in gone:
            self._files.delete(f"{self._root}/{directory_name(unit, sequence)}", recursive=True)
        too_old_ms = (time.time() - write_token_lifetime_s) * 1000
        for entry in entries:
            if is_unfinished(entry.name, unit) and entry.modified_ms < too_old_ms:
                self._files.delete(entry.path, recursive=True)
        return gone

    def _directories(self) -> list[FileStatus]:
        try:
            return [entry for entry in self._files.list(self._root or "/") if entry.is_directory]
        except FileNotFound:
            return []


def _cut(buffer: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    pages, at = [], 0
    for size in sizes:
        pages.append(buffer[at : at + size])
        at += size
    return pages
