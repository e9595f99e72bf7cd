"""A client's requests about the cluster, over REST; those about names are in `names`.

Knows no datanode and moves no file data. Everything here is safe to repeat, and is repeated (`coordinator_http`).
"""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.ids import show
from peacefs.protocol.limits import plan_queue_timeout_s, plan_timeout_s
from peacefs.protocol.messages import (
    Allocated,
)
from peacefs.protocol.values.balance_status import BalanceStatus
from peacefs.protocol.values.chunk_explanation import ChunkExplanation, parse_chunk_id
from peacefs.protocol.values.fsck_findings import FsckPage
from peacefs.protocol.values.schedule import Schedule
from peacefs.topology.network_view import NetworkView

from .http import CoordinatorHttp
from .values import (
    SnapshotDifference,
    SnapshotDiffReport,
)

S = TypeVar("S")


def current_user() -> str:
    """Return our name for the coordinator: HADOOP_USER_NAME, else that of the operating system's user."""
    named = os.environ.get("HADOOP_USER_NAME")
    if named:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A numeric user id without a name, as containers have them.
        return f"uid{os.getuid()}"


def user_of(http: CoordinatorHttp, user: str | None) -> str:
    """Return who we are: `user`, else the local socket's owner, whose the token is, or `current_user`."""
    if user:
        return user
    if http.address.socket is not None:
        with contextlib.suppress(OSError, KeyError):
            return http.address.socket.owner()
    return http.token.user or current_user()


class CoordinatorApi:
    """Thread-safe. Raises classes of `errors`; owns `http` and closes it."""

    def __init__(self, http: CoordinatorHttp, user: str) -> None:
        self._http = http
        self.user = user

    @property
    def address(self) -> str:
        """The coordinator's, `http://host:port`."""
        return self._http.address.http

    @property
    def _me(self) -> dict[str, str]:
        return {"user": self.user}

    def close(self) -> None:
        self._http.close()

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot_diff(self, path: str, older: str, newer: str) -> list[SnapshotDifference]:
        """Raises SnapshotRefused, AccessDenied, FileNotFound.

        Over WebHDFS: no frame holds a million differences.
        """
        parameters = {"op": "GETSNAPSHOTDIFF", "user.name": self.user}
        parameters |= {"oldsnapshotname": older, "snapshotname": newer}
        answer = self._http.ask("GET", "/webhdfs/v1" + quote(path), params=parameters)
        return self._read(answer, dict[str, SnapshotDiffReport])["SnapshotDiffReport"].diff_list

    # -- the network -------------------------------------------------------------------------------

    def network(self) -> NetworkView:
        """Racks, servers and links of the datanodes that are alive, with what is on its way."""
        return self._read(self._http.ask("GET", "/v1/topology"), NetworkView)

    def reload_topology(self) -> NetworkView:
        """The coordinator reads its topology file again. Raises InvalidTopology, BadRequest when it has none."""
        return self._read(self._http.ask("POST", "/v1/topology/reload", params=self._me), NetworkView)

    def allocate_probe(self, pipeline: Sequence[str]) -> Allocated:
        """Get a token to write a chunk through exactly these datanodes, for no file.

        Raises NoDatanodes, Overloaded.
        """
        body = msgspec.json.encode({"pipeline": pipeline})
        return self._read(self._http.ask("POST", "/v1/topology/probes", params=self._me, body=body), Allocated)

    def forget_probes(self, chunks: Sequence[int]) -> None:
        """Has them deleted."""
        body = msgspec.json.encode({"chunks": chunks})
        self._http.ask("POST", "/v1/topology/probes/forget", params=self._me, body=body)

    # -- the cluster -------------------------------------------------------------------------------

    def cluster_status(self) -> dict[str, Any]:
        """Datanodes, chunks and repairs, as `GET /v1/status` gives them."""
        return self._read(self._http.ask("GET", "/v1/status"), dict[str, Any])

    def decide_about_datanode(self, node: str, decision: str, *, hours: float | None = None) -> dict[str, Any]:
        """`decommission`, `recommission`, or for some `hours` `maintenance`; how the datanode stands then.

        Raises BadRequest for an unknown datanode.
        """
        parameters = self._me | ({} if hours is None else {"hours": f"{hours:g}"})
        answer = self._http.ask("POST", f"/v1/datanodes/{quote(node, safe='')}/{decision}", params=parameters)
        return self._read(answer, dict[str, Any])

    def datanode_credentials(self) -> list[dict[str, Any]]:
        """Return the credential of each datanode id, and when it was revoked, if it is."""
        return self._read(self._http.ask("GET", "/v1/credentials", params=self._me), list[dict[str, Any]])

    def decide_about_credential(self, node: str, decision: str) -> dict[str, Any]:
        """`revoke`, `readmit` or `forget`; how the credential stands then, or stood. Raises BadRequest."""
        answer = self._http.ask("POST", f"/v1/datanodes/{quote(node, safe='')}/{decision}", params=self._me)
        return self._read(answer, dict[str, Any])

    def start_balancing(self, run: str, threshold_percent: float, bytes_per_second: float) -> BalanceStatus:
        """Starts a run by this name; the status is about another one if that is under way."""
        request = {"run": run, "threshold_percent": threshold_percent, "bytes_per_second": bytes_per_second}
        answer = self._http.ask("POST", "/v1/balancer", params=self._me, body=msgspec.json.encode(request))
        return self._read(answer, BalanceStatus)

    def renew_balancing(self, run: str) -> BalanceStatus:
        """Renew a run; return its progress."""
        return self._read(self._http.ask("POST", f"/v1/balancer/{run}/renew", params=self._me), BalanceStatus)

    def cancel_balancing(self, run: str) -> BalanceStatus:
        """Ends the run of this name, if it is under way; how it stands."""
        return self._read(self._http.ask("POST", f"/v1/balancer/{run}/cancel", params=self._me), BalanceStatus)

    def schedule(self) -> Schedule:
        """Return what waits to be written, and what is being written."""
        return self._read(self._http.ask("GET", "/v1/schedule"), Schedule)

    def change_policy(self, policy: str) -> Schedule:
        """Raises BadRequest for a policy that there is not, Unsupported for one not installed, AccessDenied."""
        body = msgspec.json.encode({"policy": policy})
        return self._read(self._http.ask("PUT", "/v1/schedule/policy", params=self._me, body=body), Schedule)

    def inspect(self, path: str, *, every_file: bool = False) -> Iterator[FsckPage]:
        """Return the health of files page by page: those with findings, or `every_file`. Raises FileNotFound."""
        parameters = {"path": path, "every_file": str(every_file).lower(), "user": self.user}
        while True:
            page = self._read(self._http.ask("GET", "/v1/fsck", params=parameters), FsckPage)
            yield page
            if page.after is None:
                return
            parameters["after"] = page.after

    def explain_chunk(self, chunk: str) -> ChunkExplanation:
        """Return what is known of a chunk, by the id that fsck shows, and why.

        Raises FileNotFound, BadRequest, AccessDenied.
        """
        path = f"/v1/chunks/{show(parse_chunk_id(chunk))}"
        return self._read(self._http.ask("GET", path, params=self._me), ChunkExplanation)

    def plan(self, task: Mapping[str, Any], kind: type[S]) -> S:
        """Return a policy's plan, as `POST /v1/plan` has it. Raises BadRequest, NoDatanodes, Overloaded, ..."""
        answer = self._http.ask(
            "POST",
            "/v1/plan",
            body=msgspec.json.encode(task),
            answer_timeout_s=2 * (plan_timeout_s + plan_queue_timeout_s),
        )
        return self._read(answer, kind)

    def _read(self, answer: bytes, kind: type[S]) -> S:
        try:
            return msgspec.json.decode(answer, type=kind)
        except UNREADABLE as error:
            raise PeerRefused(f"{self.address} does not answer like a peacefs coordinator: {error}") from None
