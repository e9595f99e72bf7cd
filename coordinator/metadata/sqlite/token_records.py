"""TokenRecords in SQL: a table for each kind of record, a column for each of its fields."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeVar

from peacefs.coordinator.metadata.token_records import (
    DelegationRecord,
    IssuedToken,
    KeyRecord,
    OAuthClient,
    RevokedToken,
    TokenRecord,
    TokenRecords,
)

from .connections import Execute

R = TypeVar("R")

#: The first field of each is its key.
_TABLES: Final[dict[type[TokenRecord], str]] = {
    KeyRecord: "token_key",
    IssuedToken: "issued_token",
    RevokedToken: "revoked_token",
    OAuthClient: "oauth_client",
    DelegationRecord: "delegation_token",
}


def read_token_records(execute: Execute) -> TokenRecords:
    """Return all of them, each kind in order of its keys."""
    issued = (
        dataclasses.replace(each, is_administrator=bool(each.is_administrator))
        for each in _rows(execute, IssuedToken)
    )
    return TokenRecords(
        keys=tuple(_rows(execute, KeyRecord)),
        issued=tuple(issued),
        revoked=tuple(_rows(execute, RevokedToken)),
        clients=tuple(_rows(execute, OAuthClient)),
        delegations=tuple(_rows(execute, DelegationRecord)),
    )


def recorded(credential: TokenRecord) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that records one, and its values."""
    kind = type(credential)
    names = _columns(kind)
    values = tuple(getattr(credential, name) for name in names)
    marks = ", ".join("?" * len(names))
    return f"INSERT OR REPLACE INTO {_TABLES[kind]} ({', '.join(names)}) VALUES ({marks})", values


def forgotten(credential: TokenRecord) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that forgets one, and its key."""
    kind = type(credential)
    key = _columns(kind)[0]
    return f"DELETE FROM {_TABLES[kind]} WHERE {key} = ?", (getattr(credential, key),)


def _rows(execute: Execute, kind: type[R]) -> list[R]:
    names = _columns(kind)
    table = _TABLES[kind]  # type: ignore[index]
    return [kind(*row) for row in execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY {names[0]}")]


def _columns(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
