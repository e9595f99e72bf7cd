"""Reports framed calls of clients and gateways to the audit log."""

from __future__ import annotations

from peacefs.coordinator.audit_log import AuditLog, AuditRecord
from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.messages import Failure, Message
from peacefs.protocol.tokens import Signer


class AuditedRpc:
    """Writes audit records of framed calls. Used from one event loop only."""

    def __init__(self, log: AuditLog, signer: Signer) -> None:
        self._log = log
        self._signer = signer

    def tell(
        self,
        message: Message,
        reply: Message,
        host: str | None,
        *,
        caller: Caller | None,
        is_believed: bool,
        is_datanode: bool,
        seconds: float,
        trace: str,
    ) -> None:
        """Record a call of `caller`, or, if names are believed, of the user in its token or message."""
        # A PublishFile has the file inside.
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
        elif not is_believed:
            # The call was refused before its caller was known.
            user, auth = None, "none"
        code = reply.code if isinstance(reply, Failure) else None
        permission = getattr(asked, "permission", None)
        row = NAME_TABLE.get(type(message))
        self._log.record(
            AuditRecord(
                user=user,
                auth=auth,
                address=host,
                operation=type(message).__name__,
                source=path,
                destination=None if row is None else row.destination(asked),
                permission=f"{permission:04o}" if isinstance(permission, int) and permission >= 0 else None,
                protocol="datanode" if is_datanode else "rpc",
                allowed=code not in ("AccessDenied", "PathThroughFile", "Unauthenticated"),
                error=code,
                request_id=getattr(asked, "request_id", "") or None,
                seconds=seconds,
                trace=trace,
            )
        )
