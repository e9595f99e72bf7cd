"""Leases of files that are being extended: soft state, one writer at a time. Pure: `now_s` comes in.

A lease is taken, renewed by every call of its holder, and released. One that has not been renewed for
`lease_s` may be taken by somebody else; until that happens its holder may go on. That the former holder
can do no harm afterwards is not ensured here but by the numbers in the metadata (`namespace_append`).

A coordinator that has just started knows no lease. What the metadata has on record counts as held for
`lease_s` from then on, in which its holder, if there is one, says that it is there.
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
    """A body that comes through a gateway, which holds the lease by this name."""

    node: NodeId
    name: str


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    heard_s: float
    #: The datanode whose gateway holds it, if one does.
    node: NodeId | None = None


class Leases:
    """The leases whose holders have been heard of lately, longest ago first."""

    def __init__(self, now_s: float) -> None:
        self._started_s = now_s
        self._held: dict[InodeId, _Held] = {}
        #: Under way into the metadata: seen there before `hold` says of which file they are.
        self._begun: set[Lease] = set()

    @contextmanager
    def beginning(self, lease: Lease) -> Iterator[None]:
        """Have a lease respected that is committed with a file that has no inode yet, until it is held."""
        self._begun.add(lease)
        try:
            yield
        finally:
            self._begun.discard(lease)

    def check_free(self, now_s: float, inode: InodeId, recorded: Lease | None, holder: str, what: str) -> None:
        """Raises AlreadyBeingCreated when anybody but `holder` has the lease of `inode`.

        `recorded` is the metadata's lease, `what` the change that is refused then, for the message.
        """
        self._forget_silent(now_s)
        held = self._held.get(inode)
        if held is not None:
            lease: Lease | None = held.lease
        else:
            is_respected = now_s - self._started_s < lease_s or recorded in self._begun
            lease = recorded if is_respected else None
        if lease is not None and lease.holder != holder:
            raise AlreadyBeingCreated(
                f"Failed to {what} because this file lease is currently owned by {lease.holder}"
            )

    def hold(self, now_s: float, inode: InodeId, lease: Lease, node: NodeId | None = None) -> None:
        """The lease has a new holder, or another number."""
        self._held.pop(inode, None)
        self._held[inode] = _Held(lease, now_s, node)

    def upload_of(self, inode: InodeId) -> HoldersUpload | None:
        """Return the upload through a gateway that has the lease, if that is how the file is written."""
        held = self._held.get(inode)
        return None if held is None or held.node is None else HoldersUpload(held.node, held.lease.holder)

    def renew(
        self, now_s: float, inode: InodeId, lease: Lease, recorded: Lease | None, node: NodeId | None = None
    ) -> None:
        """The holder is there. Raises LeaseExpired if the lease is no more."""
        held = self._held.get(inode)
        if recorded != lease or (held is not None and held.lease != lease):
            raise LeaseExpired(f"Client (={lease.holder}) is not the lease owner any more (inode {inode})")
        self.hold(now_s, inode, lease, node or (held.node if held is not None else None))

    def release(self, inode: InodeId, lease: Lease) -> None:
        """The holder is done. Does nothing if somebody else has it."""
        held = self._held.get(inode)
        if held is not None and held.lease == lease:
            del self._held[inode]

    def forget(self, inode: InodeId) -> None:
        """Nobody has it, whoever had."""
        self._held.pop(inode, None)

    def _forget_silent(self, now_s: float) -> None:
        while self._held:
            inode, held = next(iter(self._held.items()))
            if now_s - held.heard_s < lease_s:
                return
            del self._held[inode]
