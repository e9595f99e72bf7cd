"""TokenRecords as the metadata keeps them: values, no behaviour. Times are milliseconds since 1970.

No private key and no token is among them: a backup of the metadata lets nobody in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from .tables import DELEGATION_TOKEN, ISSUED_TOKEN, OAUTH_CLIENT, REVOKED_TOKEN, TOKEN_KEY, Row

#: The names of what is recorded, as `Touched.tables` has them.
TOKEN_TABLES: Final = frozenset({"token_key", "issued_token", "revoked_token", "oauth_client", "delegation_token"})


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """The public half of a key; it verifies until `ends_ms`, None while it signs."""

    number: int
    public: bytes
    made_ms: int
    ends_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token that an administrator made."""

    id: str
    user: str
    is_administrator: bool
    issued_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True)
class RevokedToken:
    """A token that is refused until it would have expired anyway."""

    id: str
    ends_ms: int


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A program that fetches its tokens itself. `secret` is a salted hash."""

    id: str
    user: str
    secret: str
    token_s: float
    made_ms: int


@dataclass(frozen=True, slots=True)
class DelegationRecord:
    """A delegation token that counts until `ends_ms`, and can be renewed until `max_ms`."""

    sequence: int
    owner: str
    renewer: str
    ends_ms: int
    max_ms: int


TokenRecord = KeyRecord | IssuedToken | RevokedToken | OAuthClient | DelegationRecord


@dataclass(frozen=True, slots=True)
class TokenRecords:
    """All there are."""

    keys: tuple[KeyRecord, ...]
    issued: tuple[IssuedToken, ...]
    revoked: tuple[RevokedToken, ...]
    clients: tuple[OAuthClient, ...]
    delegations: tuple[DelegationRecord, ...]


#: The table of each kind of record. Its columns are the fields of the record; the first is the key.
_TABLES: Final[dict[type[TokenRecord], int]] = {
    KeyRecord: TOKEN_KEY,
    IssuedToken: ISSUED_TOKEN,
    RevokedToken: REVOKED_TOKEN,
    OAuthClient: OAUTH_CLIENT,
    DelegationRecord: DELEGATION_TOKEN,
}


def read_token_records(rows_of: Callable[[int], Iterable[Row]]) -> TokenRecords:
    """Return all records, each kind in the order in which `rows_of` returns the rows of its table."""
    issued = (IssuedToken(row[0], row[1], bool(row[2]), row[3], row[4]) for row in rows_of(ISSUED_TOKEN))
    return TokenRecords(
        keys=tuple(KeyRecord(*row) for row in rows_of(TOKEN_KEY)),
        issued=tuple(issued),
        revoked=tuple(RevokedToken(*row) for row in rows_of(REVOKED_TOKEN)),
        clients=tuple(OAuthClient(*row) for row in rows_of(OAUTH_CLIENT)),
        delegations=tuple(DelegationRecord(*row) for row in rows_of(DELEGATION_TOKEN)),
    )


def token_row(record: TokenRecord) -> tuple[int, tuple[Any, ...]]:
    """Return the table and the row of a record."""
    values = (getattr(record, field.name) for field in dataclasses.fields(record))
    return _TABLES[type(record)], tuple(values)
