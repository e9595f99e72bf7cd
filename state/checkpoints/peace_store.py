"""Checkpoints in peacefs, written in parallel by the I/O service under the coordinator's grants (SGuard 5).

<root>/<unit>-<sequence>/index, manifest.json, part-00000, ...     its own pages are in the parts
<root>/<unit>-<sequence>/pages-<older>.part-00000, ...             copies of names, which share the data
"""

from __future__ import annotations

from typing import Final

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.io_service import IOService, PendingCheckpoint
from peacefs.protocol.errors import CheckpointDamaged, FileNotFound
from peacefs.protocol.limits import MIB, checkpoint_workers_default
from peacefs.state.limits import state_index_bytes_max

from .store import PendingWrite, WriteRequest

# Chunk size. A page can be changed without a clone once its chunk is written.
state_chunk_bytes_default: Final = 8 * MIB


_INDEX: Final = "index"
_PART: Final = "part-"
# More than any unit has, so that pruning removes only what dead writers have left.
_ALL: Final = 2**31


class PeaceStore:
    """A `CheckpointStore` below `root` of a cluster. Pages are released chunk by chunk, as written.

    Errors of the file system pass through unchanged: an unreadable chunk is not a damaged checkpoint.
    """

    def __init__(
        self,
        files: PeaceFileSystem,
        *,
        root: str = "/checkpoint",
        workers: int = checkpoint_workers_default,
        chunk_bytes: int = state_chunk_bytes_default,
        replication: int | None = None,
    ) -> None:
        """Take the same parameters as the I/O service."""
        self._files = files
        self._root = root.rstrip("/")
        self._service = IOService(
            files, root=root, workers=workers, chunk_bytes=chunk_bytes, replication=replication
        )

    def sequences(self, unit: str) -> list[int]:
        return self._service.sequences(unit)

    def submit(self, request: WriteRequest, instead_of: PendingWrite | None = None) -> PendingWrite:
        references: dict[str, str] = {}
        if request.referred:
            assert request.source is not None, "there is nothing to refer to"
            for each in request.referred:
                for path in self._pages(request.unit, request.source, each):
                    part = path.rpartition("/")[2].removeprefix(f"pages-{each}.")
                    references[f"pages-{each}.{part}"] = path
        return _Pending(
            self._service.submit(
                request.unit,
                request.sequence,
                request.runs,
                instead_of=instead_of.pending if isinstance(instead_of, _Pending) else None,
                files={_INDEX: request.index},
                references=references,
                written=request.written,
            )
        )

    def index(self, unit: str, sequence: int) -> bytes:
        path = f"{self._directory(unit, sequence)}/{_INDEX}"
        try:
            with self._files.open(path) as source:
                if source.length > state_index_bytes_max:
                    raise CheckpointDamaged(f"{path} has {source.length} bytes, more than any index")
                return source.read()
        except FileNotFound:
            if sequence in self.sequences(unit):
                raise CheckpointDamaged(f"{path} is not there") from None
            raise

    def read_pages(self, unit: str, sequence: int, stored_in: int, target: memoryview) -> None:
        self._service.read_into(self._pages(unit, sequence, stored_in), target)

    def remove(self, unit: str, sequence: int) -> None:
        self._files.delete(self._directory(unit, sequence), recursive=True)

    def remove_left_over(self, unit: str) -> None:
        self._service.prune(unit, _ALL)

    def _directory(self, unit: str, sequence: int) -> str:
        return f"{self._root}/{unit}-{sequence}"

    def _pages(self, unit: str, sequence: int, stored_in: int) -> list[str]:
        """Return the files in which a checkpoint holds the pages of checkpoint `stored_in`."""
        prefix = _PART if sequence == stored_in else f"pages-{stored_in}.{_PART}"
        directory = self._directory(unit, sequence)
        return sorted(entry.path for entry in self._files.list(directory) if entry.name.startswith(prefix))


class _Pending:
    """Adapt the I/O service's pending checkpoint to `PendingWrite`."""

    def __init__(self, pending: PendingCheckpoint) -> None:
        self.pending = pending

    @property
    def expected_start_s(self) -> float:
        return self.pending.expected_start_s

    def wait(self, timeout_s: float | None = None) -> None:
        self.pending.result(timeout_s)

    def cancel(self) -> bool:
        return self.pending.cancel()
