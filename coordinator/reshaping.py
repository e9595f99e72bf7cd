"""Truncating and concatenating files: refused while somebody extends one of them, else one commit."""

from __future__ import annotations

from collections.abc import Sequence

from . import namespace
from .leases import Leases
from .metadata import InodeId
from .paths import NamespacePath, parse_path
from .workplace import Workplace


class Reshaping:
    """Who has lost the lease of a file, and does not know it yet, is fenced off by the same commit."""

    def __init__(self, workplace: Workplace, leases: Leases) -> None:
        self._at = workplace
        self._leases = leases

    async def truncate(self, path: str, length: int, user: str) -> bool:
        """Always true: there is nothing to be waited for. Raises IllegalChange, AlreadyBeingCreated, ..."""
        parsed = parse_path(path)
        self._check_not_extended([parsed], f"TRUNCATE_FILE {parsed} for {user}")
        freed = await self._at.commit(lambda tx: namespace.truncate(tx, parsed, length, self._at.now_ms()))
        self._at.free(freed)
        return True

    async def concat(self, target: str, sources: Sequence[str], user: str, request_id: str = "") -> None:
        """Moves the contents of `sources` to the end of `target`, and raises as `truncate` does.

        With a request id it is done once, however often it is asked.
        """
        onto, parsed = parse_path(target), [parse_path(source) for source in sources]
        if request_id and self._at.reader.answer(request_id) is not None:
            return
        self._check_not_extended([onto, *parsed], f"CONCAT {onto} for {user}")
        changed = await self._at.commit(
            lambda tx: namespace.concat(tx, onto, parsed, self._at.now_ms(), request_id)
        )
        self._at.cluster.load(changed)

    def _check_not_extended(self, paths: Sequence[NamespacePath], what: str) -> None:
        for path in paths:
            inode: InodeId = namespace.existing_file(self._at.reader, path).inode
            recorded = self._at.reader.lease(inode)
            self._leases.check_free(self._at.monotonic(), inode, recorded, "", what)
