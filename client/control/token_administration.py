"""Administers tokens, OAuth2 clients and keys through the coordinator's `/v1/tokens`."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.values.token_status import (
    ClientStatus,
    MadeClient,
    MadeToken,
    TokenList,
)

from .addresses import parse_address
from .http import CoordinatorHttp

S = TypeVar("S")


class TokenAdministration:
    """Requests about tokens and OAuth2 clients. Use as a context manager, or call `close`.

    Methods raise the coordinator's error, and PeerError. A retry may create a token or client twice. `listed` and
    `clients` show both, and one can be revoked.
    """

    def __init__(self, address: str) -> None:
        self._http = CoordinatorHttp(parse_address(address))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def create(self, user: str, seconds: float, *, administrator: bool = False) -> MadeToken:
        """Create a token. Raises BadRequest, AccessDenied, Overloaded."""
        request = {"user": user, "seconds": seconds, "administrator": administrator}
        return self._read(self._http.ask("POST", "/v1/tokens", body=msgspec.json.encode(request)), MadeToken)

    def listed(self) -> TokenList:
        return self._read(self._http.ask("GET", "/v1/tokens"), TokenList)

    def revoke(self, token_id: str) -> None:
        """Revoke a token. Raises FileNotFound, Overloaded."""
        self._http.ask("POST", f"/v1/tokens/revoke/{quote(token_id)}")

    def rotate_keys(self, *, end_all: bool = False) -> TokenList:
        body = msgspec.json.encode({"end_all": end_all})
        return self._read(self._http.ask("POST", "/v1/tokens/rotate-keys", body=body), TokenList)

    def create_client(self, user: str, token_seconds: float) -> MadeClient:
        """Register a client. Raises BadRequest, Overloaded."""
        request = {"user": user, "token_seconds": token_seconds}
        return self._read(
            self._http.ask("POST", "/v1/tokens/clients", body=msgspec.json.encode(request)), MadeClient
        )

    def clients(self) -> list[ClientStatus]:
        return self._read(self._http.ask("GET", "/v1/tokens/clients"), list[ClientStatus])

    def delete_client(self, client_id: str) -> None:
        """Delete a client. Raises FileNotFound, Overloaded."""
        self._http.ask("DELETE", f"/v1/tokens/clients/{quote(client_id, safe='')}")

    def _read(self, answer: bytes, kind: type[S]) -> S:
        try:
            return msgspec.json.decode(answer, type=kind)
        except UNREADABLE as error:
            where = self._http.address.http
            raise PeerRefused(f"{where} does not answer like a peacefs coordinator: {error}") from None
