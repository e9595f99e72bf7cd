"""Relays requests of clients that know only one address from a standby to the leading coordinator.

Hadoop's OAuth2 providers fetch tokens from one address, and give up at any refusal. So each coordinator answers
them; a standby asks the leader. Other requests are not relayed, because other clients know all addresses.
"""

from __future__ import annotations

import http.client
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from peacefs.coordinator.journal.port import Member
from peacefs.coordinator.limits import leader_poll_interval_s, takeover_hold_s
from peacefs.protocol.asgi import App, Receive, Scope, Send
from peacefs.protocol.errors import BadRequest, PeacefsError, ServiceUnready
from peacefs.protocol.limits import KIB
from peacefs.protocol.webhdfs.answers import fault_answer, send_answer
from peacefs.runtime.tls import TlsIdentity

from .leadership import Leadership

# Seconds for which a standby waits for the leader's answer, and the maximum size of a request.
relay_timeout_s: Final = 10.0
relayed_body_bytes_max: Final = 64 * KIB


#: Paths of clients that know only one address.
_RELAYED = ("/v1/oauth2/token",)
_HEADERS_THERE = (b"content-type", b"authorization")
_HEADERS_BACK = ("content-type", "cache-control", "pragma", "www-authenticate")


class Relayed(NamedTuple):
    """The leader's answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


#: Sends a request to the leader. Raises OSError, http.client.HTTPException.
Ask = Callable[[Member, str, dict[str, str], bytes], Awaitable[Relayed]]


class Relay:
    """A layer in front of the application. While it knows the leader, a standby relays to it."""

    def __init__(
        self,
        app: App,
        leadership: Leadership,
        ask: Ask,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._app = app
        self._leadership = leadership
        self._ask = ask
        self._clock = clock
        self._sleep = sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("type") != "http" or scope["path"] not in _RELAYED or self._leadership.may_answer:
            await self._app(scope, receive, send)
            return
        try:
            body = await _body(receive)
            headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in scope["headers"]
                if name in _HEADERS_THERE
            }
            answer = await self._answer(scope["path"], headers, body)
        except PeacefsError as fault:
            await send_answer(scope, send, fault_answer(fault, scope))
            return
        if answer is None:
            await self._app(scope, _again(body), send)
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, path: str, headers: dict[str, str], body: bytes) -> Relayed | None:
        """Return the leader's answer; None if this coordinator leads by then. Raises ServiceUnready."""
        leadership = self._leadership
        give_up_s = self._clock() + takeover_hold_s
        while not leadership.may_answer:
            leader = leadership.leader
            if leader is not None and leader != leadership.me:
                try:
                    answer = await self._ask(leader, path, headers, body)
                except (OSError, http.client.HTTPException):
                    answer = None
                if answer is not None:
                    return answer
            if self._clock() >= give_up_s:
                raise ServiceUnready("no coordinator leads at this moment; try again")
            await self._sleep(leader_poll_interval_s)
        return None


def ask_over_http(tls: TlsIdentity | None) -> Callable[[Member, str, dict[str, str], bytes], Relayed]:
    """Return a function that sends a request over HTTP, or TLS in a cluster with TLS, and waits for the answer."""

    def ask(leader: Member, path: str, headers: dict[str, str], body: bytes) -> Relayed:
        if tls is None:
            connection = http.client.HTTPConnection(leader.name, timeout=relay_timeout_s)
        else:
            connection = http.client.HTTPSConnection(
                leader.name, timeout=relay_timeout_s, context=tls.connector_context()
            )
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            content = answer.read(relayed_body_bytes_max)
            back = [
                (name.encode(), value.encode("latin-1"))
                for name in _HEADERS_BACK
                if (value := answer.headers.get(name)) is not None
            ]
            length = (b"content-length", str(len(content)).encode())
            return Relayed(answer.status, [*back, length], content)
        finally:
            connection.close()

    return ask


async def _body(receive: Receive) -> bytes:
    """Read the body. Raises BadRequest."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > relayed_body_bytes_max:
            raise BadRequest(f"the body has more than {relayed_body_bytes_max} bytes")
        if not message.get("more_body", False):
            return body


def _again(body: bytes) -> Receive:
    """Return a `receive` that yields a body that was read already."""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
