"""The requests about delegation tokens, which ignore the path."""

from __future__ import annotations

from dataclasses import dataclass

from .query import RequestQuery
from .request import Request


@dataclass(frozen=True, slots=True)
class GetDelegationToken(Request):
    """GETDELEGATIONTOKEN; only `renewer` may renew the token, or no one if empty.

    `kind` is empty for WebHDFS's own kind, `service` for the address that the client asks.
    """

    renewer: str
    kind: str
    service: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> GetDelegationToken:
        said = (query.text(name) or "" for name in ("renewer", "kind", "service"))
        return cls(path, user, *said)


@dataclass(frozen=True, slots=True)
class RenewDelegationToken(Request):
    token: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> RenewDelegationToken:
        return cls(path, user, query.required("token"))


@dataclass(frozen=True, slots=True)
class CancelDelegationToken(Request):
    token: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> CancelDelegationToken:
        return cls(path, user, query.required("token"))
