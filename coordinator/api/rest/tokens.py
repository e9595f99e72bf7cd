"""REST for `peacefs token`: tokens, OAuth2 clients and keys, for administrators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from peacefs.coordinator.authentication.oauth import OAuthClients
from peacefs.coordinator.authentication.tokens import Tokens
from peacefs.coordinator.metadata.token_records import OAuthClient
from peacefs.protocol.callers.bearer import key_id
from peacefs.protocol.callers.verifier import delegation_id
from peacefs.protocol.errors import Unsupported
from peacefs.protocol.limits import bearer_token_default_s, granted_token_default_s
from peacefs.protocol.values.token_status import (
    ClientStatus,
    KeyStatus,
    MadeClient,
    MadeToken,
    TokenList,
    TokenStatus,
)

from .common import Body


class TokenBody(Body):
    """A token to create. Only a superuser can have an administrator's token."""

    user: str
    seconds: float = Field(bearer_token_default_s, allow_inf_nan=False)
    administrator: bool = False


class ClientBody(Body):
    """A program to register, which fetches tokens for a user. Each token lives for `token_seconds`."""

    user: str
    token_seconds: float = Field(granted_token_default_s, allow_inf_nan=False)


class RotateBody(Body):
    end_all: bool = False


def token_routes(tokens: Tokens, clients: OAuthClients, for_administrators: Any) -> APIRouter:
    router = APIRouter(prefix="/v1/tokens", dependencies=[for_administrators])

    @router.post("")
    async def create(body: TokenBody) -> MadeToken:
        made = await tokens.create(body.user, body.seconds, is_administrator=body.administrator)
        return MadeToken(
            token=made.token,
            id=made.id,
            user=made.user,
            administrator=made.is_administrator,
            ends_ms=made.ends_ms,
        )

    @router.get("")
    async def listed() -> TokenList:
        return _listed(tokens)

    @router.post("/rotate-keys")
    async def rotate(body: RotateBody) -> TokenList:
        """Sign with a new key from now on. Earlier tokens stay valid, unless `end_all` is set."""
        await tokens.rotate(end_all=body.end_all)
        return _listed(tokens)

    @router.post("/revoke/{token_id:path}", status_code=204)
    async def revoke(token_id: str) -> None:
        """Revoke a token by its id: at once at the coordinator, and within a second at the datanodes."""
        await tokens.revoke(token_id)

    @router.post("/clients")
    async def create_client(body: ClientBody) -> MadeClient:
        made = await clients.create(body.user, body.token_seconds)
        return MadeClient(secret=made.secret, **asdict(_client(made.client)))

    @router.get("/clients")
    async def list_clients() -> list[ClientStatus]:
        return [_client(each) for _, each in sorted(tokens.book.clients.items())]

    @router.delete("/clients/{client_id}", status_code=204)
    async def delete_client(client_id: str) -> None:
        """Delete a client, and revoke the tokens that it was granted."""
        await clients.delete(client_id)

    return router


def no_token_routes() -> APIRouter:
    """Return routes that refuse all requests and say why, for a coordinator without authentication."""
    router = APIRouter(prefix="/v1/tokens", include_in_schema=False)

    @router.api_route("{rest:path}", methods=["GET", "POST", "DELETE"])
    async def refused(rest: str) -> None:
        raise Unsupported(
            "this coordinator believes names and has no tokens: start it with --authentication token"
        )

    return router


def _listed(tokens: Tokens) -> TokenList:
    book = tokens.book
    bearers = [
        TokenStatus(
            id=each.id, kind="bearer", user=each.user, administrator=each.is_administrator, ends_ms=each.ends_ms
        )
        for each in book.issued.values()
    ]
    delegations = [
        TokenStatus(
            id=delegation_id(each.sequence),
            kind="delegation",
            user=each.owner,
            administrator=False,
            ends_ms=each.ends_ms,
        )
        for each in book.delegations.values()
    ]
    keys = [
        KeyStatus(id=key_id(each.number), made_ms=each.made_ms, ends_ms=each.ends_ms)
        for each in book.keys.values()
    ]
    return TokenList(
        tokens=sorted([*bearers, *delegations], key=lambda each: (each.user, each.ends_ms, each.id)),
        revoked=sorted(book.revoked),
        keys=sorted(keys, key=lambda each: each.made_ms),
    )


def _client(client: OAuthClient) -> ClientStatus:
    return ClientStatus(id=client.id, user=client.user, token_seconds=client.token_s, made_ms=client.made_ms)
