"""Quotas of directories, as `PeaceFileSystem.quotas`."""

from __future__ import annotations

from peacefs.protocol.ids import new_request_id
from peacefs.protocol.messages import ChangeQuota, GetQuotaSums, QuotaSums

from .control.names import NameApi
from .control.values import QuotaUsage


class Quotas:
    """Limits of names and bytes, as in HDFS. All methods raise classes of `peacefs.protocol.errors`."""

    def __init__(self, names: NameApi) -> None:
        self._names = names

    def set(self, path: str, *, names: int | None = None, space: int | None = None) -> None:
        """Limit a directory's names (it counts itself) and bytes (of all replicas). For superusers.

        None keeps a limit, -1 removes it. The use may exceed a new limit. Raises FileNotFound, AccessDenied,
        BadRequest.
        """
        user = self._names.user
        self._names.change(ChangeQuota(path, user, names=names, space=space, request_id=new_request_id()))

    def usage(self, path: str) -> QuotaUsage:
        """Return a directory's quotas and its use of them; without a quota, the use is counted now.

        Raises FileNotFound, AccessDenied.
        """
        sums = self._names.ask(GetQuotaSums(path, self._names.user), QuotaSums)
        return QuotaUsage(sums.names, sums.names_quota, sums.space, sums.space_quota)
