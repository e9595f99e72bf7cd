"""Record HTTP requests in the audit log: those of WebHDFS and REST, and requests that authentication refuses.

This ASGI layer observes requests and answers. It is outside authentication but inside admission, so requests that
are refused for overload are not recorded. The user is the authenticated caller, `scope["peacefs.caller"]`, or
without authentication the name in the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from peacefs.coordinator.audit_log import AuditLog, AuditRecord
from peacefs.coordinator.calls.name_row import NAME_REQUEST, NameRequest
from peacefs.protocol.asgi import App, Message, Receive, Scope, Send, client_host
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.tokens import Signer
from peacefs.protocol.trace_context import current_id
from peacefs.protocol.webhdfs.query import RequestQuery, is_webhdfs, path_of

from .request_metrics import operation_of

#: Not recorded, because monitors and pages request these all the time. Refusals are recorded for all paths.
_NOT_TOLD = ("/v1/status", "/v1/live/", "/v1/openapi.json", "/v1/docs")
_DENIALS = (401, 403)
_DENIAL_CODES = ("AccessDenied", "ImpersonationRefused", "PathThroughFile")
_ERROR_BODY_BYTES_MAX = 64 * 1024
_OPERATION_CHARACTERS = 64


class _Asked(msgspec.Struct):
    """The parts of REST request bodies that the audit log reports; it ignores everything else in them."""

    path: Any = None
    source: Any = None
    sources: Any = None
    location: Any = None
    checkpoint: Any = None
    name: Any = None
    target: Any = None
    pairs: Any = None
    user: Any = None
    token: Any = None
    permission: Any = None
    request_id: Any = None


class _RemoteException(msgspec.Struct):
    exception: str = ""
    peacefsCode: str = ""


class _ErrorBody(msgspec.Struct):
    RemoteException: _RemoteException


class AuditedRequests:
    """An ASGI layer that records each request once, after its answer. Used from one event loop only."""

    def __init__(
        self, app: App, log: AuditLog, signer: Signer, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._app = app
        self._log = log
        self._signer = signer
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = self._clock()
        is_rest = not is_webhdfs(scope) and scope["path"].startswith("/v1/")
        body: list[bytes] = []
        status, answer = 0, b""

        async def watched_receive() -> Message:
            message = await receive()
            if piece := message.get("body"):
                body.append(piece)
            return message

        async def watched_send(message: Message) -> None:
            nonlocal status, answer
            status = message.get("status", status)
            if status >= 400 and len(answer) < _ERROR_BODY_BYTES_MAX:
                answer += message.get("body", b"")
            await send(message)

        fault: str | None = None
        try:
            await self._app(scope, watched_receive if is_rest else receive, watched_send)
        except BaseException as error:
            fault = type(error).__name__
            raise
        finally:
            self._tell(scope, is_rest, b"".join(body), status, answer, fault, self._clock() - began_s)

    def _tell(
        self,
        scope: Scope,
        is_rest: bool,
        body: bytes,
        status: int,
        answer: bytes,
        fault: str | None,
        seconds: float,
    ) -> None:
        exception, code = _error_of(status, answer)
        # HDFS answers most refusals with 403, also those that do not concern permissions.
        allowed = status not in _DENIALS or not (status == 401 or code in _DENIAL_CODES)
        is_told = is_webhdfs(scope) or (is_rest and not scope["path"].startswith(_NOT_TOLD))
        if allowed and not is_told:
            return
        asked = self._asked_of_rest(scope, body) if is_rest else _asked_of_webhdfs(scope)
        caller = scope.get("peacefs.caller")
        if caller is not None:
            user, auth = caller.user, caller.via
        elif status == 401:
            user, auth = None, "none"
        else:
            user, auth = asked.pop("user"), asked.pop("auth")
        effective, real_user = scope.get("peacefs.effective-user"), None
        if effective is not None:
            user, real_user = effective, user
        self._log.record(
            AuditRecord(
                user=user,
                real_user=real_user,
                auth=auth,
                address=client_host(scope),
                protocol="webhdfs" if is_webhdfs(scope) else "rest" if is_rest else "http",
                allowed=allowed,
                error=fault or code or exception or (str(status) if status >= 400 else None),
                seconds=seconds,
                trace=current_id(),
                operation=asked["operation"],
                source=asked["source"],
                destination=asked["destination"],
                permission=asked["permission"],
                request_id=asked["request_id"],
            )
        )

    def _asked_of_rest(self, scope: Scope, body: bytes) -> dict[str, Any]:
        told = _decoded(body)
        query = _query_of(scope)
        path, user = _text(told.path), _text(told.user)
        auth = "simple"
        if token := _text(told.token):
            path, user = self._signer.named_in(token)
            auth = "token"
        pairs = told.pairs if isinstance(told.pairs, list) else []
        sources = told.sources if isinstance(told.sources, list) else [pair[0] for pair in pairs if _is_pair(pair)]
        source = path or _text(told.source) or _text(told.location) or _text(told.checkpoint)
        destination = _text(told.target) or ",".join(str(pair[1]) for pair in pairs if _is_pair(pair))
        permission = told.permission
        return {
            "operation": f"{scope['method']} {scope['path']}",
            "source": source or ",".join(map(str, sources)) or _text(told.name) or _said(query, "path"),
            "destination": destination or None,
            "permission": f"{permission:04o}" if isinstance(permission, int) and permission >= 0 else None,
            "request_id": _text(told.request_id),
            "user": user or _said(query, "user"),
            "auth": auth,
        }


def _asked_of_webhdfs(scope: Scope) -> dict[str, Any]:
    """Return the recorded fields of a WebHDFS request, or of a refused request that is not REST."""
    query = _query_of(scope)
    try:
        path = path_of(scope)
    except PeacefsError:
        path = scope["path"]
    operation = operation_of(scope)
    if operation == "other":
        operation = (_said(query, "op") or f"{scope['method']} {scope['path']}")[:_OPERATION_CHARACTERS]
    request: NameRequest | None = scope.get(NAME_REQUEST)
    return {
        "operation": operation,
        "source": path,
        "destination": _destination_said(query) if request is None else request.row.destination(request.asked),
        "permission": _said(query, "permission"),
        "request_id": _said(query, "requestid"),
        "user": _said(query, "user.name"),
        "auth": "simple",
    }


def _destination_said(query: RequestQuery | None) -> str | None:
    """Return the destination that the query of a rejected request names."""
    return _said(query, "destination") or _said(query, "sources") or _said(query, "snapshotname")


def _query_of(scope: Scope) -> RequestQuery | None:
    try:
        return RequestQuery(scope["query_string"])
    except PeacefsError:
        return None


def _said(query: RequestQuery | None, name: str) -> str | None:
    return None if query is None else query.text(name)


def _decoded(body: bytes) -> _Asked:
    try:
        return msgspec.json.decode(body, type=_Asked)
    except UNREADABLE:
        return _Asked()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2


def _error_of(status: int, answer: bytes) -> tuple[str, str]:
    """Return Hadoop's name and our own code of the error in an answer; empty if there is none."""
    if status < 400:
        return "", ""
    try:
        told = msgspec.json.decode(answer, type=_ErrorBody).RemoteException
    except UNREADABLE:
        return "", ""
    return told.exception, told.peacefsCode
