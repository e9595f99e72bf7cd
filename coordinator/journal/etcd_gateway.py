"""etcd's JSON gateway, as much of it as a journal needs: transactions, ranges, leases.

A call goes to one member after the other until one answers. It was carried out at most once a member that was
asked: what a call must not do twice is guarded by what its transaction compares.
"""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from peacefs.protocol.errors import StartupError

from .etcd_grpc import EtcdGrpc
from .member_connection import MemberAnswer, MemberConnection
from .port import JournalFull, JournalRefused, JournalUnsure

A = TypeVar("A", bound=msgspec.Struct)

#: Parts of etcd's messages, all of errors after which the same call may succeed nowhere.
_REFUSALS = (
    "authentication failed",
    "permission denied",
    "invalid user name",
    "user name is empty",
    "user name not found",
    "request is too large",
    # With users, etcd 3 takes no certificate with a name through its gateway.
    "CommonName of client",
)
_TOKEN_IS_OVER = "invalid auth token"
_NO_ROOM = "database space exceeded"


@dataclass(frozen=True)
class EtcdAccess:
    """The members of etcd, as `host:port`, and what they are shown and believed by."""

    endpoints: tuple[str, ...]
    #: True to speak TLS; with `ca` for what signed the members' certificates.
    is_tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = ""


class _KeyValue(msgspec.Struct):
    key: bytes = b""
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0


class _Header(msgspec.Struct):
    revision: int = 0
    member_id: int = 0


class Range(msgspec.Struct):
    """The answer to a range."""

    kvs: list[_KeyValue] = msgspec.field(default_factory=list)
    count: int = 0


class _Response(msgspec.Struct):
    response_range: Range = msgspec.field(default_factory=Range)


class TxnOutcome(msgspec.Struct):
    """The answer to a transaction: whether its comparison held, and what was read."""

    header: _Header = msgspec.field(default_factory=_Header)
    succeeded: bool = False
    responses: list[_Response] = msgspec.field(default_factory=list)

    def read(self, at: int = 0) -> _KeyValue | None:
        """Return the one pair that a range of the transaction found."""
        found = self.responses[at].response_range.kvs
        return found[0] if found else None


class _Lease(msgspec.Struct):
    ID: int = 0
    TTL: int = 0


class _KeptAlive(msgspec.Struct):
    result: _Lease = msgspec.field(default_factory=_Lease)


class _Status(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    leader: int = 0


class _EtcdMember(msgspec.Struct):
    ID: int = 0
    clientURLs: list[str] = msgspec.field(default_factory=list)


class _EtcdMembers(msgspec.Struct):
    members: list[_EtcdMember] = msgspec.field(default_factory=list)


class _Token(msgspec.Struct):
    token: str = ""


class _Problem(msgspec.Struct):
    error: str = ""
    message: str = ""


class _Connections:
    """Connections to the members that are kept, each used by one call at a time. Thread-safe."""

    def __init__(self, access: EtcdAccess) -> None:
        """Raises OSError for certificates that cannot be read."""
        self._context = _verification(access) if access.is_tls else None
        self._kept: dict[str, list[MemberConnection]] = {}
        self._lock = threading.Lock()

    def post(self, endpoint: str, path: str, content: bytes, headers: Mapping[str, str]) -> MemberAnswer:
        """Raises OSError."""
        with self._lock:
            kept = self._kept.setdefault(endpoint, [])
            connection = kept.pop() if kept else None
        if connection is None:
            connection = MemberConnection(endpoint, self._context)
        try:
            answer = connection.post(path, content, headers)
        except BaseException:
            connection.close()
            # The others to this member are most likely of no more use.
            self._drop(endpoint)
            raise
        if connection.is_open:
            with self._lock:
                self._kept.setdefault(endpoint, []).append(connection)
        else:
            connection.close()
        return answer

    def _drop(self, endpoint: str) -> None:
        with self._lock:
            for connection in self._kept.pop(endpoint, []):
                connection.close()

    def close(self) -> None:
        for endpoint in list(self._kept):
            self._drop(endpoint)


def key_of(key: str) -> str:
    """Return a key as the gateway writes bytes."""
    return base64.b64encode(key.encode()).decode()


def value_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


class EtcdGateway:
    """Thread-safe."""

    def __init__(self, access: EtcdAccess) -> None:
        """Raises StartupError for certificates that cannot be read."""
        self._access = access
        scheme = "https" if access.is_tls else "http"
        self._urls = [f"{scheme}://{endpoint}" for endpoint in access.endpoints]
        self._lock = threading.Lock()
        #: The member that answered the last call.
        self._at = 0
        self._token = ""
        try:
            self._connections = _Connections(access)
            self._grpc = EtcdGrpc(_verification(access, "h2") if access.is_tls else None)
        except OSError as error:
            raise StartupError(f"the certificates for the journal cannot be read: {error}") from None

    def close(self) -> None:
        self._connections.close()
        self._grpc.close()

    def put_if(self, given: tuple[str, bytes], key: str, value: bytes) -> bool:
        """Put a value where there is none, while another key has the value that is given, in one step.

        Return whether that was done and is known. False tells nothing: find out by `txn`.
        """
        headers = self._headers()
        with self._lock:
            at = self._at
        try:
            return self._grpc.put_if(
                self._access.endpoints[at], headers.get("Authorization", ""), given, key, value
            )
        except TimeoutError:
            self._go_on(at)
        except OSError:
            # The gateway of the same member may be there.
            pass
        return False

    def txn(
        self,
        compare: Sequence[Mapping[str, Any]],
        success: Sequence[Mapping[str, Any]],
        failure: Sequence[Mapping[str, Any]] = (),
    ) -> TxnOutcome:
        """Carry out `success` if all comparisons hold, else `failure`, in one step."""
        body = {"compare": list(compare), "success": list(success), "failure": list(failure)}
        return self._call("kv/txn", body, TxnOutcome)

    def range(self, **wanted: Any) -> Range:
        return self._call("kv/range", wanted, Range)

    def delete(self, key: str, end: str) -> None:
        """Remove the keys from one up to another."""
        done = self._call("kv/deleterange", {"key": key_of(key), "range_end": key_of(end)}, TxnOutcome)
        # Otherwise etcd keeps what was removed, until it is full.
        self._call("kv/compaction", {"revision": done.header.revision}, TxnOutcome, may_fail=True)

    def grant_lease(self, seconds: float) -> int:
        return self._call("lease/grant", {"TTL": max(1, round(seconds))}, _Lease).ID

    def keep_lease(self, lease: int) -> bool:
        """Return whether the lease has begun anew; False when it is over."""
        return self._call("lease/keepalive", {"ID": lease}, _KeptAlive).result.TTL > 0

    def revoke_lease(self, lease: int) -> None:
        self._call("lease/revoke", {"ID": lease}, TxnOutcome, may_fail=True)

    def go_to_leader(self) -> None:
        """Ask etcd's leader from now on: any other member would have to pass on to it what changes something.

        It is found by the address that it names; where it names one that is not ours, nothing changes.
        """
        status = self._call("maintenance/status", {}, _Status, may_fail=True)
        if status.leader in (0, status.header.member_id):
            return
        for member in self._call("cluster/member/list", {}, _EtcdMembers, may_fail=True).members:
            named = [url.rpartition("//")[2] for url in member.clientURLs if status.leader == member.ID]
            for at, endpoint in enumerate(self._access.endpoints):
                if endpoint in named:
                    with self._lock:
                        self._at = at

    def _call(self, path: str, body: Mapping[str, Any], answer: type[A], *, may_fail: bool = False) -> A:
        content = msgspec.json.encode(body)
        problem = "nobody was asked"
        for _ in range(len(self._urls) + 1):
            with self._lock:
                at = self._at
            try:
                response = self._post(at, path, content, self._headers())
            except OSError as error:
                problem = f"{self._urls[at]}: {error or type(error).__name__}"
                self._go_on(at)
                continue
            if response.status == HTTPStatus.OK:
                try:
                    return msgspec.json.decode(response.content, type=answer, strict=False)
                except msgspec.DecodeError as error:
                    raise JournalRefused(f"{self._urls[at]} does not answer as etcd does: {error}") from None
            problem = f"{self._urls[at]}: {_problem_of(response)}"
            if _NO_ROOM in problem:
                raise JournalFull(f"the journal's etcd is full ({problem}): free room there (its alarm NOSPACE)")
            if _TOKEN_IS_OVER in problem:
                self._log_in()
                continue
            if any(refusal in problem for refusal in _REFUSALS):
                raise JournalRefused(f"the journal's etcd refuses this coordinator: {problem}")
            if may_fail:
                return answer()
            self._go_on(at)
        raise JournalUnsure(f"the journal's etcd did not answer: {problem}")

    def _post(self, at: int, path: str, content: bytes, headers: Mapping[str, str]) -> MemberAnswer:
        """Raises OSError."""
        shown = {"Content-Type": "application/json", **headers}
        return self._connections.post(self._access.endpoints[at], f"/v3/{path}", content, shown)

    def _go_on(self, at: int) -> None:
        """The next member may fare better."""
        with self._lock:
            if self._at == at:
                self._at = (at + 1) % len(self._urls)

    def _headers(self) -> dict[str, str]:
        if self._access.user and not self._token:
            self._log_in()
        return {"Authorization": self._token} if self._token else {}

    def _log_in(self) -> None:
        body = msgspec.json.encode({"name": self._access.user, "password": self._access.password})
        try:
            response = self._post(self._at, "auth/authenticate", body, {})
        except OSError as error:
            raise JournalUnsure(f"the journal's etcd did not let us in: {error or type(error).__name__}") from None
        if response.status != HTTPStatus.OK:
            problem = _problem_of(response)
            if any(refusal in problem for refusal in _REFUSALS):
                raise JournalRefused(f"the journal's etcd refuses user {self._access.user!r}: {problem}")
            raise JournalUnsure(f"the journal's etcd did not let us in: {problem}")
        self._token = msgspec.json.decode(response.content, type=_Token).token


def _verification(access: EtcdAccess, protocol: str = "http/1.1") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=None if access.ca is None else str(access.ca))
    context.set_alpn_protocols([protocol])
    if access.certificate is not None:
        context.load_cert_chain(access.certificate, access.key)
    return context


def _problem_of(response: MemberAnswer) -> str:
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.DecodeError:
        said = response.content.decode(errors="replace").strip().splitlines()
        return f"HTTP {response.status} {said[0][:200] if said else ''}".rstrip()
    return problem.message or problem.error or f"HTTP {response.status}"
