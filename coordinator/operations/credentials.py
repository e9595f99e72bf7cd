"""Keys of datanode ids, and revocations: commit them first, then act on them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from peacefs.coordinator.metadata.model import Enrolment
from peacefs.protocol.credentials import PUBLIC_KEY_BYTES, fingerprint, proves_registration
from peacefs.protocol.errors import BadRequest, CredentialRefused
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import Register

from .context import OperationContext

log = logging.getLogger("peacefs.coordinator")


class Credentials:
    """Binds each datanode id to the key with which it first registered. Used from one event loop only."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context
        self._enrolled = context.reader.enrolments()

    def recall(self) -> None:
        """Load the revocations, at a start and after another coordinator has changed them."""
        self._enrolled = self._ctx.reader.enrolments()
        for node, enrolment in self._enrolled.items():
            if enrolment.revoked_ms is not None:
                self._ctx.cluster.revoke(node)
            else:
                self._ctx.cluster.readmit(node)

    @property
    def enrolled(self) -> Mapping[NodeId, Enrolment]:
        return self._enrolled

    def is_enrolled(self, registration: Register, transcript: bytes) -> bool:
        """Return whether the datanode has its id's key; False if the id has none. Raises CredentialRefused."""
        node, key = registration.node, registration.public_key
        if not proves_registration(key, registration.proof, node, transcript):
            raise CredentialRefused(f"datanode {node} does not prove that it has the credential that it shows")
        enrolment = self._enrolled.get(node)
        if enrolment is None:
            return False
        if enrolment.revoked_ms is not None:
            raise CredentialRefused(
                f"datanode {node} was revoked: `peacefs datanodes readmit {node}` lets it in again"
            )
        if enrolment.public_key != key:
            raise CredentialRefused(
                f"datanode {node} shows credential {fingerprint(key)}, its id belongs to "
                f"{fingerprint(enrolment.public_key)}: put its credential.key back, or have it enrolled anew with "
                f"`peacefs datanodes forget {node}`"
            )
        return True

    async def enrol(self, node: NodeId, public_key: bytes) -> None:
        """Bind the id to this key, unless another key was first."""
        assert len(public_key) == PUBLIC_KEY_BYTES
        enrolment = Enrolment(public_key, self._ctx.now_ms())
        await self._ctx.commit(lambda tx: tx.enrol(node, enrolment))
        if self._enrolled.setdefault(node, enrolment) is enrolment:
            log.info("datanode %s is enrolled with credential %s", node, fingerprint(public_key))

    async def revoke(self, node: NodeId) -> Enrolment:
        """Revoke a datanode and count its replicas as lost. Raises BadRequest for an id without a key."""
        enrolment = self._of(node)
        if enrolment.revoked_ms is None:
            enrolment = Enrolment(enrolment.public_key, enrolment.enrolled_ms, self._ctx.now_ms())
            await self._replace(node, enrolment)
            log.warning("datanode %s is revoked: its replicas count as lost", node)
        self._ctx.cluster.revoke(node)
        return enrolment

    async def readmit(self, node: NodeId) -> Enrolment:
        """Let a revoked datanode register again with the same key. Raises BadRequest as `revoke` does."""
        enrolment = self._of(node)
        if enrolment.revoked_ms is not None:
            enrolment = Enrolment(enrolment.public_key, enrolment.enrolled_ms)
            await self._replace(node, enrolment)
        self._ctx.cluster.readmit(node)
        return enrolment

    async def forget(self, node: NodeId) -> Enrolment:
        """Forget the key of this id; the next registration sets it. Raises BadRequest as `revoke` does."""
        enrolment = self._of(node)
        await self._ctx.commit(lambda tx: tx.forget_enrolment(node))
        self._enrolled.pop(node, None)
        self._ctx.cluster.readmit(node)
        return enrolment

    def _of(self, node: NodeId) -> Enrolment:
        enrolment = self._enrolled.get(node)
        if enrolment is None:
            raise BadRequest(f"no datanode {node} is enrolled: see `peacefs datanodes credentials`")
        return enrolment

    async def _replace(self, node: NodeId, enrolment: Enrolment) -> None:
        await self._ctx.commit(lambda tx: tx.replace_enrolment(node, enrolment))
        self._enrolled[node] = enrolment
