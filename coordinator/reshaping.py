"""Truncating and concatenating files: refused while somebody extends one of them, else one commit."""

from __future__ import annotations

from collections.abc import Sequence

from . import access_checks, namespace
from .leases import Leases
from .metadata import InodeId, Transaction
from .paths import NamespacePath
from .permissions import Access
from .records import ChunkRecord
from .snapshots import changeable_path
from .workplace import Workplace


class Reshaping:
    """Who has lost the lease of a file, and does not know it yet, is fenced off by the same commit."""

    def __init__(self, workplace: Workplace, leases: Leases) -> None:
        self._at = workplace
        self._leases = leases

    async def truncate(self, path: str, length: int, user: str) -> bool:
        """Always true: there is nothing to be waited for. Raises IllegalChange, AlreadyBeingCreated, ..."""
        parsed, caller = changeable_path(path), self._at.callers.of(user)
        access_checks.check_access(self._at.reader, parsed, caller, Access.WRITE)
        self._check_not_extended([parsed], f"TRUNCATE_FILE {parsed} for {user}")

        def change(tx: Transaction) -> list[ChunkRecord]:
            access_checks.check_access(tx, parsed, caller, Access.WRITE)
            return namespace.truncate(tx, parsed, length, self._at.now_ms())

        freed = await self._at.commit(change)
        self._at.free(freed)
        return True

    async def concat(self, target: str, sources: Sequence[str], user: str, request_id: str = "") -> None:
        """Moves the contents of `sources` to the end of `target`, and raises as `truncate` does.

        With a request id it is done once, however often it is asked.
        """
        onto, parsed = changeable_path(target), [changeable_path(source) for source in sources]
        caller = self._at.callers.of(user)
        if request_id and self._at.reader.answer(request_id) is not None:
            return
        access_checks.check_concat(self._at.reader, onto, parsed, caller)
        self._check_not_extended([onto, *parsed], f"CONCAT {onto} for {user}")

        def change(tx: Transaction) -> list[ChunkRecord]:
            if not request_id or tx.answer(request_id) is None:
                access_checks.check_concat(tx, onto, parsed, caller)
            return namespace.concat(tx, onto, parsed, self._at.now_ms(), request_id)

        changed = await self._at.commit(change)
        self._at.cluster.load(changed)

    def _check_not_extended(self, paths: Sequence[NamespacePath], what: str) -> None:
        for path in paths:
            inode: InodeId = namespace.existing_file(self._at.reader, path).inode
            recorded = self._at.reader.lease(inode)
            self._leases.check_free(self._at.monotonic(), inode, recorded, "", what)
