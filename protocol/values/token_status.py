"""Tokens and OAuth2 clients as `/v1/tokens` tells of them. Times are milliseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MadeToken:
    """A token, shown this one time."""

    token: str
    id: str
    user: str
    administrator: bool
    ends_ms: int


@dataclass(frozen=True)
class TokenStatus:
    """A token that counts; `kind` is bearer or delegation."""

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
    """A client and its secret, shown this one time."""

    secret: str


@dataclass(frozen=True)
class KeyStatus:
    """A key; `ends_ms` is None for the one that signs."""

    id: str
    made_ms: int
    ends_ms: int | None


@dataclass(frozen=True)
class TokenList:
    """All tokens that were made by hand and all delegation tokens, what is revoked, and the keys."""

    tokens: list[TokenStatus]
    revoked: list[str]
    keys: list[KeyStatus]
