"""The requests about delegation tokens, which ignore the path."""

from __future__ import annotations

from dataclasses import dataclass

from .query import RequestQuery
from .request import Request


@dataclass(frozen=True, slots=True)
class GetDelegationToken(Request):
    """GETDELEGATIONTOKEN; only `renewer` may renew the token, or no one if empty."""

    renewer: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> GetDelegationToken:
        return cls(path, user, query.text("renewer") or "")


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
