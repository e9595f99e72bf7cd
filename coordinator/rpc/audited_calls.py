"""Tells the audit log of calls that come in frames, from clients and from gateways."""

from __future__ import annotations

from peacefs.coordinator.audit_log import AuditLog, AuditRecord
from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.messages import (
    ConcatFiles,
    CopyPath,
    DropSnapshot,
    ExchangePaths,
    Failure,
    Message,
    RenamePath,
    RenameTakenSnapshot,
    ReturnToSnapshot,
    TakeSnapshot,
)
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import Signer
from peacefs.protocol.trace_context import current_id


class AuditedRpc:
    """Used from one event loop only."""

    def __init__(self, log: AuditLog, signer: Signer) -> None:
        self._log = log
        self._signer = signer

    def tell(
        self,
        message: Message,
        reply: Message,
        host: str | None,
        *,
        caller: Caller | None = None,
        is_datanode: bool,
        seconds: float,
    ) -> None:
        """Have a call recorded. Of whom is known from its `caller`; else a call with a token is its user's."""
        # A publication at once carries the file within.
        asked = getattr(message, "file", message)
        path, user = getattr(asked, "path", None), getattr(asked, "user", None)
        auth = "simple"
        if path is None and (token := getattr(message, "token", "")):
            path, user = self._signer.named_in(token)
            auth = "token"
        elif is_datanode:
            auth = "datanode"
        if caller is not None:
            user, auth = caller.user, caller.via.value
        code = reply.code if isinstance(reply, Failure) else None
        if code == "Unauthenticated":
            user, auth = None, "none"
        permission = getattr(asked, "permission", None)
        self._log.record(
            AuditRecord(
                user=user,
                auth=auth,
                address=host,
                operation=type(message).__name__,
                source=path,
                destination=_destination_of(asked),
                permission=f"{permission:04o}" if isinstance(permission, int) and permission >= 0 else None,
                protocol="datanode" if is_datanode else "rpc",
                allowed=code not in ("AccessDenied", "Unauthenticated"),
                error=code,
                request_id=getattr(asked, "request_id", "") or None,
                seconds=seconds,
                trace=current_id(),
            )
        )


def _destination_of(asked: Message | NewFile) -> str | None:
    """Return the other path, or name, that a call is about, as it is told of the same request over WebHDFS."""
    match asked:
        case RenamePath() | CopyPath():
            return asked.target
        case ConcatFiles():
            return ",".join(asked.sources)
        case ExchangePaths():
            return ",".join(other for _, other in asked.pairs)
        case TakeSnapshot() | DropSnapshot() | ReturnToSnapshot():
            return asked.name or None
        case RenameTakenSnapshot():
            return asked.new_name
        case _:
            return None
