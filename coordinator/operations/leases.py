"""Leases of files that are being extended: soft state, one writer per file. Pure: `now_s` is an argument.

A lease is taken, renewed by each call of its holder, and released. If it was not renewed for `lease_s`, another
writer may take it; until then its holder may go on. The numbers in the metadata (`namespace/append.py`), not
this module, keep a former holder from doing harm.

A coordinator that has just started or taken over knows no leases. It treats the leases on record as held for
`lease_s`. In this time their holders must give a sign of life.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from peacefs.coordinator.metadata.model import InodeId, Lease
from peacefs.protocol.errors import AlreadyBeingCreated, LeaseExpired
from peacefs.protocol.ids import NodeId

lease_s: Final = 60.0


@dataclass(frozen=True, slots=True)
class HoldersUpload:
    """A body that arrives through a gateway. The gateway holds the lease by this name."""

    node: NodeId
    name: str


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    heard_s: float
    #: The datanode of the gateway that holds the lease, if a gateway does.
    node: NodeId | None = None


class Leases:
    """The leases whose holders gave a sign of life lately, longest ago first."""

    def __init__(self, now_s: float) -> None:
        self._leads_since_s = now_s
        self._held: dict[InodeId, _Held] = {}
        #: Leases that are being committed. `hold` will tell their files.
        self._begun: set[Lease] = set()

    def lead(self, now_s: float) -> None:
        """Begin to lead. The leases on record are those that another coordinator gave."""
        self._leads_since_s = now_s

    def respects_record(self, now_s: float) -> bool:
        """Return whether leases on record count although their holders were not heard yet."""
        return now_s - self._leads_since_s < lease_s

    @contextmanager
    def beginning(self, lease: Lease) -> Iterator[None]:
        """Reserve a lease that is committed with a file that has no inode yet, until `hold` is called."""
        self._begun.add(lease)
        try:
            yield
        finally:
            self._begun.discard(lease)

    def check_free(self, now_s: float, inode: InodeId, recorded: Lease | None, holder: str, what: str) -> None:
        """Raise AlreadyBeingCreated if anybody but `holder` has the lease of `inode`.

        `recorded` is the lease in the metadata. `what` names the refused change in the message.
        """
        self._forget_silent(now_s)
        held = self._held.get(inode)
        if held is not None:
            lease: Lease | None = held.lease
        else:
            is_respected = self.respects_record(now_s) or recorded in self._begun
            lease = recorded if is_respected else None
        if lease is not None and lease.holder != holder:
            raise AlreadyBeingCreated(
                f"Failed to {what} because this file lease is currently owned by {lease.holder}"
            )

    def hold(self, now_s: float, inode: InodeId, lease: Lease, node: NodeId | None = None) -> None:
        """Record a new holder, or a new number, of the lease."""
        self._held.pop(inode, None)
        self._held[inode] = _Held(lease, now_s, node)

    def upload_of(self, inode: InodeId) -> HoldersUpload | None:
        """Return the upload through a gateway that holds the lease; None if there is none."""
        held = self._held.get(inode)
        return None if held is None or held.node is None else HoldersUpload(held.node, held.lease.holder)

    def renew(
        self, now_s: float, inode: InodeId, lease: Lease, recorded: Lease | None, node: NodeId | None = None
    ) -> None:
        """Note a sign of life of the holder. Raises LeaseExpired if the lease has ended."""
        held = self._held.get(inode)
        if recorded != lease or (held is not None and held.lease != lease):
            raise LeaseExpired(f"Client (={lease.holder}) is not the lease owner any more (inode {inode})")
        self.hold(now_s, inode, lease, node or (held.node if held is not None else None))

    def release(self, inode: InodeId, lease: Lease) -> None:
        """Release the lease of this holder. Do nothing if somebody else has it."""
        held = self._held.get(inode)
        if held is not None and held.lease == lease:
            del self._held[inode]

    def forget(self, inode: InodeId) -> None:
        """Release the lease, whoever has it."""
        self._held.pop(inode, None)

    def _forget_silent(self, now_s: float) -> None:
        while self._held:
            inode, held = next(iter(self._held.items()))
            if now_s - held.heard_s < lease_s:
                return
            del self._held[inode]
