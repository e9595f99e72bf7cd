"""REST on datanodes' credentials: list, revoke, readmit and forget them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel

from peacefs.coordinator.metadata.model import Enrolment
from peacefs.coordinator.operations.credentials import Credentials
from peacefs.protocol.credentials import fingerprint
from peacefs.protocol.ids import NodeId


class CredentialStatus(BaseModel):
    """The key that a datanode id belongs to. Times are milliseconds since 1970."""

    node: str
    fingerprint: str
    enrolled_ms: int
    #: None while the datanode may register.
    revoked_ms: int | None


def add_credential_routes(
    rest: FastAPI, credentials: Credentials, hang_up: Callable[[NodeId], None], for_superusers: Any
) -> None:
    """Add the routes. `hang_up` ends the session of a datanode, if it has one."""
    router = APIRouter(prefix="/v1", dependencies=[for_superusers])

    @router.get("/credentials")
    async def all_credentials() -> list[CredentialStatus]:
        """Return the credentials of all datanodes, by id."""
        return [_status(node, enrolment) for node, enrolment in sorted(credentials.enrolled.items())]

    @router.post("/datanodes/{node}/revoke")
    async def revoke(node: str) -> CredentialStatus:
        """End a datanode's session, refuse its registrations and receipts, and count its replicas as lost.

        The datanode still knows the cluster secret: replace that, too, if the machine is in the wrong hands.
        """
        enrolment = await credentials.revoke(node)
        hang_up(node)
        return _status(node, enrolment)

    @router.post("/datanodes/{node}/readmit")
    async def readmit(node: str) -> CredentialStatus:
        """Let a datanode register again, with the same credential."""
        return _status(node, await credentials.readmit(node))

    @router.post("/datanodes/{node}/forget")
    async def forget(node: str) -> CredentialStatus:
        """Forget the credential of an id; the next registration sets it. Return the forgotten credential."""
        return _status(node, await credentials.forget(node))

    rest.include_router(router)


def _status(node: NodeId, enrolment: Enrolment) -> CredentialStatus:
    return CredentialStatus(
        node=node,
        fingerprint=fingerprint(enrolment.public_key),
        enrolled_ms=enrolment.enrolled_ms,
        revoked_ms=enrolment.revoked_ms,
    )
