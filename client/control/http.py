"""HTTP requests to a coordinator: sends and retries them, and raises the errors in its answers.

Every request must be safe to repeat: it changes nothing, or carries a request id that the coordinator recognises.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import httpx
import msgspec

from peacefs.client.limits import client_answer_timeout_s, client_retry_s
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import (
    PeacefsError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    from_remote_exception,
)
from peacefs.protocol.limits import connect_timeout_s
from peacefs.protocol.trace_context import TRACE_HEADER, current_id, new_trace_id
from peacefs.runtime.admin_socket import within_limit
from peacefs.runtime.idle_reaper import IdleReaper
from peacefs.runtime.tls import TlsIdentity
from peacefs.runtime.tls_faults import explain, is_about_certificates

from .addresses import CoordinatorAddress, nobody_at
from .coordinators import Coordinators
from .retry import NotReached, RetryPolicy, Unanswered, is_not_leading
from .token_source import TokenSource

# Connections are closed after this time without a request. The coordinator's time (`http_keep_alive_s`) is longer.
client_http_idle_s: Final = 30.0
client_http_connections_max: Final = 64


_UNAUTHORIZED = 401


class CoordinatorHttp:
    """Sends the requests of `CoordinatorApi` and similar classes to the coordinator that leads. Thread-safe.

    All idle connections are closed together. `transport` is replaced in tests only.
    """

    def __init__(
        self,
        address: CoordinatorAddress | Coordinators,
        retry_policy: RetryPolicy | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        idle_s_max: float = client_http_idle_s,
        token: TokenSource | None = None,
        tls: TlsIdentity | None = None,
    ) -> None:
        """`token` None means the token from the environment, if any.

        Over TLS, `tls` defines the trusted CAs. The default is PEACEFS_CA_FILE, then the CAs of the system.
        """
        self._coordinators = Coordinators(address) if isinstance(address, CoordinatorAddress) else address
        #: The addresses of all coordinators.
        self.address = self._coordinators.address
        self._retry_policy = retry_policy or RetryPolicy()
        self.token = TokenSource.of(None) if token is None else token
        self._transport = transport
        self._tls = tls
        self._idle_s_max = idle_s_max
        self._lock = threading.Lock()
        #: We close idle connections ourselves, because httpx closes them only at its next request.
        self._http: httpx.Client | None = None
        self._is_closed = False
        self._in_use = 0
        self._idle_since_s = 0.0
        self._reaper = IdleReaper(self._reap, "idle HTTP connections")
        self._held = contextlib.ExitStack()

    def close(self) -> None:
        """Close all connections. No request may follow."""
        self._reaper.stop()
        with self._lock:
            self._is_closed = True
            http, self._http = self._http, None
        if http is not None:
            http.close()
        self._held.close()

    @contextlib.contextmanager
    def _client(self) -> Iterator[httpx.Client]:
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"the conversation with {self.address.http} was closed")
            http = self._http = self._http or self._make_client()
            self._in_use += 1
        try:
            yield http
        finally:
            with self._lock:
                self._in_use -= 1
                self._idle_since_s = time.monotonic()
            self._reaper.watch()

    def _make_client(self) -> httpx.Client:
        verify: ssl.SSLContext | bool = False
        if self.address.tls:
            self._tls = self._tls or TlsIdentity.of_client()
            verify = self._tls.connector_context()
        # A proxy from the environment could not reach 127.0.0.1 of this machine. Loading certificates takes 20 ms,
        # and plain http needs none.
        transport = self._transport
        if self.address.socket is not None and transport is None:
            self._held.close()
            name = self._held.enter_context(within_limit(self.address.socket))
            transport = httpx.HTTPTransport(uds=name)
        return httpx.Client(
            trust_env=False,
            verify=verify,
            transport=transport,
            # All connections may stay idle until the reaper closes them together. httpcore 1.0.9 may close a
            # surplus or expired connection that it has already given to a request, which then waits forever.
            limits=httpx.Limits(
                max_connections=client_http_connections_max,
                max_keepalive_connections=client_http_connections_max,
                keepalive_expiry=None,
            ),
        )

    def _reap(self, now_s: float) -> float | None:
        """Close all connections if there was no request for long enough."""
        with self._lock:
            if self._http is None or self._in_use:
                return None
            due_s = self._idle_since_s + self._idle_s_max
            if now_s < due_s:
                return due_s
            idle, self._http = self._http, None
        idle.close()
        return None

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes = b"",
        retry_s: float = client_retry_s,
        answer_timeout_s: float = client_answer_timeout_s,
    ) -> bytes:
        """Send one logical request, retried as `RetryPolicy` says; return the body. `path` is percent-encoded.

        No attempt waits longer than `answer_timeout_s`. Raises the coordinator's error, or PeerUnreachable,
        PeerTimeout, PeerRefused.
        """
        return self._retry_policy.ask(
            lambda: self._attempt(method, path, params, body, answer_timeout_s), retry_s, self._coordinators.count
        )

    def download(
        self,
        path: str,
        take: Callable[[bytes], object],
        progress: Callable[[int, int], None],
        *,
        answer_timeout_s: float,
    ) -> None:
        """Send a POST, and pass the body on in pieces. `progress` gets the bytes received and the total.

        Not retried. Raises the coordinator's error, PeerUnreachable (even for a cut body), PeerTimeout,
        PeerRefused.
        """
        timeout = httpx.Timeout(answer_timeout_s, connect=connect_timeout_s)
        headers, asked = self._authorization() | _traced(), self._coordinators.current
        url = _root(asked) + path
        try:
            with self._client() as http, http.stream("POST", url, timeout=timeout, headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal(response, asked)
                whole, come = int(response.headers["content-length"]), 0
                for piece in response.iter_bytes():
                    take(piece)
                    come += len(piece)
                    progress(come, whole)
        except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
            raise self._not_connected(fault, asked) from None
        except httpx.TimeoutException:
            raise self._silent(answer_timeout_s, asked) from None
        except httpx.TransportError as broken:
            raise self._broken(broken, asked) from None

    def _attempt(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes, timeout_s: float
    ) -> bytes:
        shown, asked = self._authorization(), self._coordinators.current
        response = self._request(asked, method, path, params, body, timeout_s, shown)
        if response.status_code == _UNAUTHORIZED and (newer := self._authorization()) != shown:
            # The token in the file was replaced after it was read.
            response = self._request(asked, method, path, params, body, timeout_s, newer)
        if response.is_success:
            return response.content
        refusal = self._refusal(response, asked)
        if is_not_leading(refusal):
            self._coordinators.leave(asked)
        try:
            raise refusal
        finally:
            # Break the reference cycle of error and frame, which would keep the callers' objects alive.
            del refusal

    def _authorization(self) -> dict[str, str]:
        token = self.token.current()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _request(
        self,
        asked: CoordinatorAddress,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes,
        timeout_s: float,
        headers: dict[str, str],
    ) -> httpx.Response:
        if asked.socket is not None and not asked.socket.is_socket():
            # httpcore 1.0.9 leaks the socket of a failed connection.
            raise NotReached(nobody_at(self.address))
        try:
            with self._client() as http:
                return http.request(
                    method,
                    _root(asked) + path,
                    params=params,
                    content=body or None,
                    headers=headers | _traced() | ({"Content-Type": "application/json"} if body else {}),
                    timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, connect_timeout_s)),
                )
        except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
            absence = self._not_connected(fault, asked)
            self._coordinators.leave(asked)
            raise (absence if isinstance(absence, PeerRefused) else NotReached(absence)) from None
        except httpx.TimeoutException:
            self._coordinators.leave(asked)
            raise Unanswered(self._silent(timeout_s, asked)) from None
        except httpx.TransportError as broken:
            self._coordinators.leave(asked)
            raise Unanswered(self._broken(broken, asked)) from None

    def _not_connected(self, fault: httpx.TransportError, asked: CoordinatorAddress) -> PeacefsError:
        of_tls = _tls_fault(fault)
        if of_tls is None:
            return nobody_at(self.address)
        kind = PeerRefused if is_about_certificates(of_tls) else PeerUnreachable
        return kind(f"the coordinator at {asked.http} {explain(of_tls, asked.host)}")

    def _silent(self, timeout_s: float, asked: CoordinatorAddress) -> PeerTimeout:
        return PeerTimeout(f"the coordinator at {asked.http} said nothing for {timeout_s:g} s")

    def _broken(self, fault: httpx.TransportError, asked: CoordinatorAddress) -> PeerUnreachable:
        # A coordinator's port for datanodes hangs up if it receives something other than a frame.
        is_strange = isinstance(fault, httpx.RemoteProtocolError) and not self._retry_policy.has_been_answered
        hint = "; is that the coordinator's port for clients, 9870 by default?" if is_strange else ""
        return PeerUnreachable(f"the connection to {asked.http} broke: {fault}{hint}")

    def _refusal(self, response: httpx.Response, asked: CoordinatorAddress) -> PeacefsError:
        try:
            body: Any = msgspec.json.decode(response.content)
        except UNREADABLE:
            body = None
        if isinstance(body, dict) and isinstance(body.get("RemoteException"), dict):
            return from_remote_exception(body)
        return PeerRefused(
            f"{asked.http} does not answer like a peacefs coordinator (HTTP status {response.status_code})"
        )


def _traced() -> dict[str, str]:
    """Return the header with the request id, which appears in the logs of services."""
    return {TRACE_HEADER.decode(): current_id() or new_trace_id()}


def _root(address: CoordinatorAddress) -> str:
    return "http://localhost" if address.socket is not None else address.http


def _tls_fault(fault: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error that made a connection fail, if any."""
    while fault is not None:
        if isinstance(fault, ssl.SSLError):
            return fault
        fault = fault.__cause__ or fault.__context__
    return None
