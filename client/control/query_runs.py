"""Begins, ends and lists runs of queries (`protocol/values/query_runs.py`), and reads drivers' reports."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.values.query_reports import QueryReport
from peacefs.protocol.values.query_runs import RunStatus

from .addresses import CoordinatorAddress
from .api import user_of
from .http import CoordinatorHttp
from .token_source import TokenSource

report_timeout_s: Final = 2.0


S = TypeVar("S")


class CheckpointRuns:
    """The query runs of one cluster. Thread-safe; `close` ends its connections. Raises classes of `errors`."""

    def __init__(
        self, address: CoordinatorAddress, user: str | None = None, token: TokenSource | None = None
    ) -> None:
        self._http = CoordinatorHttp(address, token=token)
        self.user = user_of(self._http, user)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def begin(self, root: str, *, host: str, pid: int) -> RunStatus:
        """Make this process the only writer of a checkpoint root; create it if missing. See `Fencing.begin`."""
        request = {"path": root, "user": self.user, "host": host, "pid": pid, "request_id": new_request_id()}
        answer = self._http.ask("POST", "/v1/checkpoints/runs", body=msgspec.json.encode(request))
        return self._read(answer, RunStatus)

    def end(self, location: str) -> None:
        """End a run. Raises RunSuperseded, AccessDenied."""
        request = {"location": location, "user": self.user, "request_id": new_request_id()}
        self._http.ask("POST", "/v1/checkpoints/runs/end", body=msgspec.json.encode(request))

    def latest(self, path: str) -> list[RunStatus]:
        """Return the runs of every root at or below a path. Raises FileNotFound, AccessDenied."""
        answer = self._http.ask("GET", "/v1/checkpoints/runs", params={"path": path, "user": self.user})
        return self._read(answer, dict[str, list[RunStatus]])["runs"]

    def report(self, said: QueryReport) -> None:
        """Report a query's progress, without retries. Raises RunSuperseded, AccessDenied, PeerUnreachable."""
        body = msgspec.json.encode(said)
        self._http.ask(
            "POST", "/v1/checkpoints/reports", body=body, retry_s=0.0, answer_timeout_s=report_timeout_s
        )

    def reports(self, path: str) -> list[QueryReport]:
        """Return the latest report of every root at or below a path."""
        answer = self._http.ask("GET", "/v1/checkpoints/reports", params={"path": path, "user": self.user})
        return self._read(answer, dict[str, list[QueryReport]])["reports"]

    def _read(self, answer: bytes, kind: type[S]) -> S:
        try:
            return msgspec.json.decode(answer, type=kind)
        except UNREADABLE as error:
            where = self._http.address.http
            raise PeerRefused(f"{where} does not answer like a peacefs coordinator: {error}") from None
