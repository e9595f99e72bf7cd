"""Tokens and OAuth2 clients: the answers of `/v1/tokens`. Times are milliseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MadeToken:
    """A new token. This is the only time that it is shown."""

    token: str
    id: str
    user: str
    administrator: bool
    ends_ms: int


@dataclass(frozen=True)
class TokenStatus:
    """A valid token; `kind` is "bearer" or "delegation"."""

    id: str
    kind: str
    user: str
    administrator: bool
    ends_ms: int


@dataclass(frozen=True)
class ClientStatus:
    """An OAuth2 client, without its secret."""

    id: str
    user: str
    token_seconds: float
    made_ms: int


@dataclass(frozen=True)
class MadeClient(ClientStatus):
    """A new client and its secret. This is the only time that the secret is shown."""

    secret: str


@dataclass(frozen=True)
class KeyStatus:
    """A key for tokens; `ends_ms` is None for the key that signs new ones."""

    id: str
    made_ms: int
    ends_ms: int | None


@dataclass(frozen=True)
class TokenList:
    """All manually created tokens and all delegation tokens, the revoked ids, and the keys."""

    tokens: list[TokenStatus]
    revoked: list[str]
    keys: list[KeyStatus]
