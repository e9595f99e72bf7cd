"""A client's requests to balance the disks of a datanode: `/v1/datanodes/<node>/disks/balance`."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.values.balance_status import DiskBalanceStatus

from .addresses import CoordinatorAddress
from .api import user_of
from .http import CoordinatorHttp


class DiskBalancing:
    """One named run, on any datanode. Thread-safe; `close` ends its connections."""

    def __init__(
        self,
        address: CoordinatorAddress,
        run: str,
        threshold_percent: float,
        bytes_per_second: float,
        user: str | None = None,
    ) -> None:
        self._http = CoordinatorHttp(address)
        self._user = user_of(self._http, user)
        self._run = run
        self._threshold_percent = threshold_percent
        self._bytes_per_second = bytes_per_second

    def close(self) -> None:
        self._http.close()

    def ask(self, node: str, *, cancel: bool = False) -> DiskBalanceStatus:
        """Start, renew or cancel the run at a datanode. Raises BadRequest if the datanode is not connected."""
        request = {
            "run": self._run,
            "threshold_percent": self._threshold_percent,
            "bytes_per_second": self._bytes_per_second,
            "cancel": cancel,
        }
        path = f"/v1/datanodes/{quote(node, safe='')}/disks/balance"
        answer = self._http.ask("POST", path, params={"user": self._user}, body=msgspec.json.encode(request))
        try:
            return msgspec.json.decode(answer, type=DiskBalanceStatus)
        except UNREADABLE as error:
            raise PeerRefused(f"the answer is not that of a peacefs coordinator: {error}") from None
