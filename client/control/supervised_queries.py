"""A client's requests about queries that the coordinator keeps running: `/v1/queries`."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.limits import supervised_restarts_default
from peacefs.protocol.values.supervised_queries import QueryStatus, RunLog, Supervised

from .addresses import DEFAULT_ADDRESS, parse_address
from .api import user_of
from .http import CoordinatorHttp

S = TypeVar("S")


class WantedQuery(msgspec.Struct, frozen=True):
    """A query to keep running. With `standby`, a second driver waits, ready to take over from the first."""

    name: str
    command: Sequence[str]
    checkpoint: str = ""
    nodes: Sequence[str] = ()
    restarts_max: int = supervised_restarts_default
    standby: bool = False


class SupervisedQueries:
    """Requests about supervised queries. Use as a context manager, or call `close`.

    Methods raise the coordinator's error, and PeerError.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS.http, user: str | None = None) -> None:
        self._http = CoordinatorHttp(parse_address(address))
        self._user = user_of(self._http, user)

    def close(self) -> None:
        self._http.close()

    def register(self, wanted: WantedQuery) -> QueryStatus:
        """Start a query and keep it running. Durable when the call returns; idempotent for the same query."""
        request = {"user": self._user, **msgspec.structs.asdict(wanted)}
        return self._read(self._http.ask("POST", "/v1/queries", body=msgspec.json.encode(request)), QueryStatus)

    def all(self) -> Supervised:
        """Return all known queries and all live agents."""
        return self._read(self._http.ask("GET", "/v1/queries"), Supervised)

    def status(self, name: str) -> QueryStatus:
        """Return the status of a query. Raises FileNotFound."""
        return self._read(self._http.ask("GET", f"/v1/queries/{quote(name, safe='')}"), QueryStatus)

    def stop(self, name: str) -> QueryStatus:
        """Stop a query and do not restart it; this may take a moment. Raises FileNotFound, AccessDenied."""
        path = f"/v1/queries/{quote(name, safe='')}/stop"
        return self._read(self._http.ask("POST", path, params={"user": self._user}), QueryStatus)

    def log_of(self, name: str) -> RunLog:
        """Return the end of the log of a query's last run. Raises FileNotFound, AccessDenied, BadRequest."""
        path = f"/v1/queries/{quote(name, safe='')}/log"
        return self._read(self._http.ask("GET", path, params={"user": self._user}), RunLog)

    def forget(self, name: str) -> None:
        """Remove a query. Raises FileNotFound, AccessDenied, and BadRequest unless the query has ended."""
        self._http.ask("DELETE", f"/v1/queries/{quote(name, safe='')}", params={"user": self._user})

    def _read(self, answer: bytes, kind: type[S]) -> S:
        try:
            return msgspec.json.decode(answer, type=kind)
        except UNREADABLE as error:
            raise PeerRefused(f"the answer is not that of a peacefs coordinator: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
