"""A client's REST requests about the cluster. Requests about names are in `names`.

File data does not pass here. All requests are idempotent and are retried (`CoordinatorHttp`).
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
from peacefs.protocol.values.schedule import ProposedPhase, Recurrences, Schedule
from peacefs.topology.network_view import NetworkView

from .http import CoordinatorHttp
from .values import (
    SnapshotDifference,
    SnapshotDiffReport,
    Space,
)

S = TypeVar("S")


def current_user() -> str:
    """Return the user name for the coordinator: HADOOP_USER_NAME, else the operating system's user."""
    named = os.environ.get("HADOOP_USER_NAME")
    if named:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # Containers may have a numeric user id without a name.
        return f"uid{os.getuid()}"


def user_of(http: CoordinatorHttp, user: str | None) -> str:
    """Return `user`, else the owner of the local socket, else the token's user, else `current_user`."""
    if user:
        return user
    if http.address.socket is not None:
        with contextlib.suppress(OSError, KeyError):
            return http.address.socket.owner()
    return http.token.user or current_user()


class CoordinatorApi:
    """Requests to the coordinator, for `PeaceFileSystem` and for commands. Thread-safe.

    Owns `http`, and closes it. Every method may raise classes of `errors` in addition to those it lists.
    """

    def __init__(self, http: CoordinatorHttp, user: str) -> None:
        self._http = http
        self.user = user

    @property
    def address(self) -> str:
        return self._http.address.http

    @property
    def _me(self) -> dict[str, str]:
        return {"user": self.user}

    def close(self) -> None:
        self._http.close()

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot_diff(self, path: str, older: str, newer: str) -> list[SnapshotDifference]:
        """Compare two snapshots. Raises SnapshotRefused, AccessDenied, FileNotFound.

        This uses WebHDFS, because a million differences do not fit in a frame.
        """
        parameters = {"op": "GETSNAPSHOTDIFF", "user.name": self.user}
        parameters |= {"oldsnapshotname": older, "snapshotname": newer}
        answer = self._http.ask("GET", "/webhdfs/v1" + quote(path), params=parameters)
        return self._read(answer, dict[str, SnapshotDiffReport])["SnapshotDiffReport"].diff_list

    # -- the network -------------------------------------------------------------------------------

    def network(self) -> NetworkView:
        """Return racks, servers and links of the live datanodes, with the transfers under way."""
        return self._read(self._http.ask("GET", "/v1/topology"), NetworkView)

    def reload_topology(self) -> NetworkView:
        """Make the coordinator reload its topology file. Raises InvalidTopology, BadRequest if it has none."""
        return self._read(self._http.ask("POST", "/v1/topology/reload", params=self._me), NetworkView)

    def allocate_probe(self, pipeline: Sequence[str]) -> Allocated:
        """Return a token to write a chunk through exactly these datanodes, for no file.

        Raises NoDatanodes, Overloaded.
        """
        body = msgspec.json.encode({"pipeline": pipeline})
        return self._read(self._http.ask("POST", "/v1/topology/probes", params=self._me, body=body), Allocated)

    def forget_probes(self, chunks: Sequence[int]) -> None:
        """Delete the chunks of probes."""
        body = msgspec.json.encode({"chunks": chunks})
        self._http.ask("POST", "/v1/topology/probes/forget", params=self._me, body=body)

    # -- the cluster -------------------------------------------------------------------------------

    def cluster_status(self) -> dict[str, Any]:
        """Return datanodes, chunks and repairs, as in `GET /v1/status`."""
        return self._read(self._http.ask("GET", "/v1/status"), dict[str, Any])

    def check_access(self, path: str, action: str) -> None:
        """Raise AccessDenied unless the user may do all of `action`, such as `r-x` or `-w-`.

        Raises FileNotFound if the path does not exist.
        """
        parameters = {"op": "CHECKACCESS", "fsaction": action, "user.name": self.user}
        self._http.ask("GET", "/webhdfs/v1" + quote(path), params=parameters)

    def space(self) -> Space:
        """Return the bytes of the whole cluster. Anybody may ask, as in HDFS."""
        answer = self._http.ask("GET", "/webhdfs/v1/", params={"op": "GETSTATUS", "user.name": self.user})
        return self._read(answer, dict[str, Space])["FsStatus"]

    def decide_about_datanode(self, node: str, decision: str, *, hours: float | None = None) -> dict[str, Any]:
        """Apply `decommission`, `recommission`, or `maintenance` for some `hours`; return the datanode's state.

        Raises BadRequest for an unknown datanode.
        """
        parameters = self._me | ({} if hours is None else {"hours": f"{hours:g}"})
        answer = self._http.ask("POST", f"/v1/datanodes/{quote(node, safe='')}/{decision}", params=parameters)
        return self._read(answer, dict[str, Any])

    def datanode_credentials(self) -> list[dict[str, Any]]:
        """Return the credential of each datanode id, and the time of its revocation, if any."""
        return self._read(self._http.ask("GET", "/v1/credentials", params=self._me), list[dict[str, Any]])

    def decide_about_credential(self, node: str, decision: str) -> dict[str, Any]:
        """Apply `revoke`, `readmit` or `forget`; return the credential's state afterwards. Raises BadRequest."""
        answer = self._http.ask("POST", f"/v1/datanodes/{quote(node, safe='')}/{decision}", params=self._me)
        return self._read(answer, dict[str, Any])

    def start_balancing(self, run: str, threshold_percent: float, bytes_per_second: float) -> BalanceStatus:
        """Start a run with this name. If another run is under way, return the status of that run instead."""
        request = {"run": run, "threshold_percent": threshold_percent, "bytes_per_second": bytes_per_second}
        answer = self._http.ask("POST", "/v1/balancer", params=self._me, body=msgspec.json.encode(request))
        return self._read(answer, BalanceStatus)

    def renew_balancing(self, run: str) -> BalanceStatus:
        """Renew a run; return its progress."""
        return self._read(self._http.ask("POST", f"/v1/balancer/{run}/renew", params=self._me), BalanceStatus)

    def cancel_balancing(self, run: str) -> BalanceStatus:
        """Cancel the run with this name if it is under way; return its status."""
        return self._read(self._http.ask("POST", f"/v1/balancer/{run}/cancel", params=self._me), BalanceStatus)

    def schedule(self) -> Schedule:
        """Return the writes that wait and the writes under way."""
        return self._read(self._http.ask("GET", "/v1/schedule"), Schedule)

    def recurrences(self) -> Recurrences:
        """Return the recurring writes with their periods."""
        return self._read(self._http.ask("GET", "/v1/schedule/recurrences"), Recurrences)

    def propose_phase(self, root: str, period_s: float, size: int, replication: int) -> ProposedPhase:
        """Ask for the phase of a writer with this period. Raises BadRequest, AccessDenied, Overloaded."""
        body = {"root": root, "period_s": period_s, "bytes": size, "replication": replication, "user": self.user}
        answer = self._http.ask("POST", "/v1/schedule/phases", body=msgspec.json.encode(body))
        return self._read(answer, ProposedPhase)

    def change_policy(self, policy: str) -> Schedule:
        """Change the scheduling policy. Raises BadRequest (unknown), Unsupported (not installed), AccessDenied."""
        body = msgspec.json.encode({"policy": policy})
        return self._read(self._http.ask("PUT", "/v1/schedule/policy", params=self._me, body=body), Schedule)

    def inspect(self, path: str, *, every_file: bool = False) -> Iterator[FsckPage]:
        """Check files page by page; report those with findings, or `every_file`. Raises FileNotFound."""
        parameters = {"path": path, "every_file": str(every_file).lower(), "user": self.user}
        while True:
            page = self._read(self._http.ask("GET", "/v1/fsck", params=parameters), FsckPage)
            yield page
            if page.after is None:
                return
            parameters["after"] = page.after

    def explain_chunk(self, chunk: str) -> ChunkExplanation:
        """Explain what is known about a chunk. `chunk` is the id that fsck shows.

        Raises FileNotFound, BadRequest, AccessDenied.
        """
        path = f"/v1/chunks/{show(parse_chunk_id(chunk))}"
        return self._read(self._http.ask("GET", path, params=self._me), ChunkExplanation)

    def plan(self, task: Mapping[str, Any], kind: type[S]) -> S:
        """Return a policy's plan, from `POST /v1/plan`. Raises BadRequest, NoDatanodes, Overloaded, ..."""
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
