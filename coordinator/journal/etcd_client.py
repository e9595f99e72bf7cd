"""A client of etcd for the calls that a journal needs: transactions, ranges and leases, over gRPC.

A call goes to one member after the other until one answers, so several members may receive it. The comparisons of
a transaction prevent that it is executed twice.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from peacefs.protocol.errors import StartupError

from .etcd_messages_pb2 import (
    AuthenticateRequest,
    AuthenticateResponse,
    CompactionRequest,
    CompactionResponse,
    Compare,
    DeleteRangeRequest,
    DeleteRangeResponse,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    MemberListRequest,
    MemberListResponse,
    RangeRequest,
    RangeResponse,
    RequestOp,
    StatusRequest,
    StatusResponse,
    TxnRequest,
    TxnResponse,
)
from .grpc_connection import GrpcConnection, GrpcRefusal
from .port import JournalFull, JournalRefused, JournalUnsure

A = TypeVar("A", bound=Message)

#: Parts of etcd's errors after which the same call succeeds at no member.
_REFUSALS: Final = (
    "authentication failed",
    "permission denied",
    "invalid user name",
    "user name is empty",
    "user name not found",
    "request is too large",
)
#: Parts of etcd's errors after which the user has to log in again: etcd was restarted, or its users were changed.
_LOG_IN_AGAIN: Final = ("invalid auth token", "revision of auth store is old")
_NO_ROOM: Final = "database space exceeded"


@dataclass(frozen=True)
class EtcdAccess:
    """The members of etcd, as `host:port`, and the credentials for them."""

    endpoints: tuple[str, ...]
    #: True to use TLS; `ca` is the file of the authority that signed the members' certificates.
    is_tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = ""


class _Connections:
    """Reusable connections to the members, each used by one call at a time. Thread-safe."""

    def __init__(self, access: EtcdAccess) -> None:
        """Read the certificates. Raises OSError."""
        self._context = _verification(access) if access.is_tls else None
        self._kept: dict[str, list[GrpcConnection]] = {}
        self._lock = threading.Lock()

    def call(self, endpoint: str, path: str, message: bytes, token: str) -> bytes:
        """Call a member. Raises OSError, GrpcRefusal."""
        with self._lock:
            kept = self._kept.setdefault(endpoint, [])
            connection = kept.pop() if kept else None
        if connection is None:
            connection = GrpcConnection(endpoint, self._context)
        try:
            return connection.call(path, message, token)
        except GrpcRefusal:
            raise
        except BaseException:
            connection.close()
            # Other connections to this member have most likely failed as well.
            self._drop(endpoint)
            raise
        finally:
            if connection.is_open:
                with self._lock:
                    self._kept.setdefault(endpoint, []).append(connection)
            else:
                connection.close()

    def _drop(self, endpoint: str) -> None:
        with self._lock:
            for connection in self._kept.pop(endpoint, []):
                connection.close()

    def close(self) -> None:
        for endpoint in list(self._kept):
            self._drop(endpoint)


class EtcdClient:
    """Calls any member of etcd that answers. Thread-safe."""

    def __init__(self, access: EtcdAccess) -> None:
        """Read the certificates. Raises StartupError."""
        self._access = access
        self._lock = threading.Lock()
        #: The member that answered the last call.
        self._at = 0
        self._token = ""
        try:
            self._connections = _Connections(access)
        except OSError as error:
            raise StartupError(f"the certificates for the journal cannot be read: {error}") from None

    def close(self) -> None:
        self._connections.close()

    def txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        """Carry out `success` if all comparisons hold, else `failure`, in one step."""
        request = TxnRequest(compare=compare, success=success, failure=failure)
        return self._call("KV/Txn", request, TxnResponse)

    def range(self, wanted: RangeRequest) -> RangeResponse:
        return self._call("KV/Range", wanted, RangeResponse)

    def delete(self, keys: DeleteRangeRequest) -> None:
        done = self._call("KV/DeleteRange", keys, DeleteRangeResponse)
        # etcd keeps deleted values until they are compacted, and would become full.
        self._call(
            "KV/Compact", CompactionRequest(revision=done.header.revision), CompactionResponse, may_fail=True
        )

    def grant_lease(self, seconds: float) -> int:
        return self._call("Lease/LeaseGrant", LeaseGrantRequest(TTL=max(1, round(seconds))), LeaseGrantResponse).ID

    def keep_lease(self, lease: int) -> bool:
        """Renew a lease. Return False if it has ended."""
        # This call is a stream in both directions. Use one message of each.
        return self._call("Lease/LeaseKeepAlive", LeaseKeepAliveRequest(ID=lease), LeaseKeepAliveResponse).TTL > 0

    def revoke_lease(self, lease: int) -> None:
        self._call("Lease/LeaseRevoke", LeaseRevokeRequest(ID=lease), LeaseRevokeResponse, may_fail=True)

    def go_to_leader(self) -> None:
        """Call etcd's leader from now on, because other members forward changes to it.

        The leader is identified by the address that it announces. If that is not one of the configured addresses,
        nothing changes.
        """
        status = self._call("Maintenance/Status", StatusRequest(), StatusResponse, may_fail=True)
        if status.leader in (0, status.header.member_id):
            return
        listed = self._call("Cluster/MemberList", MemberListRequest(), MemberListResponse, may_fail=True)
        for member in listed.members:
            named = [url.rpartition("//")[2] for url in member.clientURLs if status.leader == member.ID]
            for at, endpoint in enumerate(self._access.endpoints):
                if endpoint in named:
                    with self._lock:
                        self._at = at

    def _call(self, method: str, request: Message, answer: type[A], *, may_fail: bool = False) -> A:
        content, problem = request.SerializeToString(), "nobody was asked"
        #: True if a member may have carried out the call although no answer came.
        is_unsure = False
        for _ in range(len(self._access.endpoints) + 1):
            with self._lock:
                at = self._at
            endpoint = self._access.endpoints[at]
            token = self._token
            try:
                token = token or self._log_in(endpoint)
                given: A = answer.FromString(self._ask(endpoint, method, content, token))
                return given
            except OSError as error:
                problem = f"{endpoint}: {error or type(error).__name__}"
                is_unsure = True
                self._go_on(at)
            except DecodeError as error:
                raise JournalRefused(f"{endpoint} does not answer as etcd does: {error}") from None
            except GrpcRefusal as refusal:
                problem = f"{endpoint}: {refusal}"
                if _NO_ROOM in problem and not is_unsure:
                    raise JournalFull(
                        f"the journal's etcd is full ({problem}): free room there (its alarm NOSPACE)"
                    ) from None
                if self._access.user and any(part in problem for part in _LOG_IN_AGAIN):
                    if self._token == token:
                        self._token = ""
                    continue
                _raise_refusal(f"the journal's etcd refuses this coordinator: {problem}")
                if may_fail:
                    nothing: A = answer()
                    return nothing
                is_unsure = True
                self._go_on(at)
        raise JournalUnsure(f"the journal's etcd did not answer: {problem}")

    def _ask(self, endpoint: str, method: str, content: bytes, token: str) -> bytes:
        """Call one member after the other. Raises OSError, GrpcRefusal."""
        return self._connections.call(endpoint, f"/etcdserverpb.{method}", content, token)

    def _go_on(self, at: int) -> None:
        """Try the next member."""
        with self._lock:
            if self._at == at:
                self._at = (at + 1) % len(self._access.endpoints)

    def _log_in(self, endpoint: str) -> str:
        """Log in. Return the token, empty without a user. Raises OSError, GrpcRefusal, JournalRefused."""
        if self._access.user:
            request = AuthenticateRequest(name=self._access.user, password=self._access.password)
            try:
                answer = self._ask(endpoint, "Auth/Authenticate", request.SerializeToString(), "")
            except GrpcRefusal as refusal:
                _raise_refusal(f"the journal's etcd refuses user {self._access.user!r}: {refusal}")
                raise
            token: str = AuthenticateResponse.FromString(answer).token
            self._token = token
            return token
        return ""


def _raise_refusal(problem: str) -> None:
    """Raise JournalRefused if another try cannot succeed."""
    if any(refusal in problem for refusal in _REFUSALS):
        raise JournalRefused(problem)


def _verification(access: EtcdAccess) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=None if access.ca is None else str(access.ca))
    context.set_alpn_protocols(["h2"])
    if access.certificate is not None:
        context.load_cert_chain(access.certificate, access.key)
    return context
