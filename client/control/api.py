"""A client's requests to the coordinator: names over WebHDFS, chunks over REST.

Knows no datanode and moves no file data. Everything here is safe to repeat, and is repeated (`coordinator_http`).
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.ids import new_request_id, show
from peacefs.protocol.limits import (
    copy_timeout_s,
    plan_queue_timeout_s,
    plan_timeout_s,
)
from peacefs.protocol.messages import (
    Allocated,
    Leased,
)
from peacefs.protocol.values.acl_entries import AclEntry, AclStatus, acl_text, parse_acl, whole_acl
from peacefs.protocol.values.attribute_values import Encoding, decode, encode
from peacefs.protocol.values.balance_status import BalanceStatus
from peacefs.protocol.values.chunk_explanation import ChunkExplanation, parse_chunk_id
from peacefs.protocol.values.copied_tree import CopiedTree
from peacefs.protocol.values.fsck_findings import FsckPage
from peacefs.protocol.values.schedule import Schedule
from peacefs.topology.network_view import NetworkView

from .http import CoordinatorHttp
from .values import (
    Attribute,
    ContentSummary,
    FileStatus,
    PageReply,
    QuotaUsage,
    SnapshotDifference,
    SnapshotDiffReport,
    StatusReply,
)

S = TypeVar("S")

#: An extended attribute may be new, and may be there.
ATTRIBUTE_FLAGS: Final = ("CREATE", "REPLACE")


class ListingPage(msgspec.Struct, frozen=True):
    """Entries in byte order of their names, and how many follow."""

    entries: list[FileStatus]
    remaining: int


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

    # -- names -------------------------------------------------------------------------------------

    def status(self, path: str) -> FileStatus:
        """Raises FileNotFound."""
        return self._read(self._webhdfs("GET", path, "GETFILESTATUS"), StatusReply).FileStatus.below(path)

    def pages(self, path: str) -> Iterator[ListingPage]:
        """A directory page by page; a file lists itself. Raises FileNotFound."""
        start_after = ""
        while True:
            reply = self._read(self._webhdfs("GET", path, "LISTSTATUS_BATCH", startafter=start_after), PageReply)
            yield ListingPage([entry.below(path) for entry in reply.entries], reply.remaining)
            if reply.remaining == 0 or not reply.entries:
                return
            start_after = reply.entries[-1].path_suffix

    def mkdirs(self, path: str, permission: int = 0o755) -> None:
        """Makes a directory and its parents; that it is there is fine. Raises FileAlreadyExists, ..."""
        self._boolean(self._change("PUT", path, "MKDIRS", permission=f"{permission:o}"))

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Moves atomically to exactly `target`. With `overwrite` a file or empty directory there is replaced.

        Raises FileNotFound, FileAlreadyExists, ParentNotDirectory, RenameRefused, ...
        """
        options = "OVERWRITE" if overwrite else "NONE"
        self._change("PUT", source, "RENAME", destination=target, renameoptions=options)

    def exchange(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names trade what they name, in one commit. Raises FileNotFound, IllegalChange, AccessDenied, ..."""
        request = {"pairs": pairs, "user": self.user, "request_id": new_request_id()}
        self._http.ask("POST", "/v1/exchanges", body=msgspec.json.encode(request))

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a path; return whether it was there. Raises PathIsNotEmptyDirectory."""
        return self._boolean(self._change("DELETE", path, "DELETE", recursive=str(recursive).lower()))

    def set_permission(self, path: str, permission: int) -> None:
        """Raises FileNotFound, AccessDenied."""
        self._change("PUT", path, "SETPERMISSION", permission=f"{permission:o}")

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        """None leaves one as it is. Raises FileNotFound, AccessDenied."""
        self._change("PUT", path, "SETOWNER", owner=owner or "", group=group or "")

    def set_replication(self, path: str, replication: int) -> bool:
        """False, and nothing is done, for a directory. Raises FileNotFound, AccessDenied, BadRequest."""
        return self._boolean(self._change("PUT", path, "SETREPLICATION", replication=str(replication)))

    def set_attribute(self, path: str, name: str, value: bytes, flags: Collection[str] = ATTRIBUTE_FLAGS) -> None:
        """Set an extended attribute, such as `user.colour`.

        Raises PathError for one that is there without the flag REPLACE, or is not without CREATE.
        """
        encoded = encode(value, Encoding.HEX)
        self._change(
            "PUT", path, "SETXATTR", **{"xattr.name": name, "xattr.value": encoded, "flag": ",".join(flags)}
        )

    def attributes(self, path: str) -> dict[str, bytes]:
        """Return the extended attributes that we may see. Raises FileNotFound, AccessDenied."""
        reply = self._read(self._webhdfs("GET", path, "GETXATTRS", encoding="hex"), dict[str, list[Attribute]])
        return {each.name: decode(each.value or "") for each in reply["XAttrs"]}

    def remove_attribute(self, path: str, name: str) -> None:
        """Raises PathError for one that is not there, FileNotFound, AccessDenied."""
        self._change("PUT", path, "REMOVEXATTR", **{"xattr.name": name})

    def acl(self, path: str) -> list[AclEntry]:
        """Return all entries of an ACL. Raises FileNotFound, AccessDenied."""
        told = self._read(self._webhdfs("GET", path, "GETACLSTATUS"), dict[str, AclStatus])["AclStatus"]
        return whole_acl(int(told.permission, 8), parse_acl(",".join(told.entries)))

    def change_acl(self, path: str, operation: str, entries: Sequence[AclEntry] = ()) -> None:
        """Raises FileNotFound, AccessDenied, InvalidAcl."""
        if operation == "REMOVEACLENTRIES":
            spec = ",".join(str(entry).rpartition(":")[0] + ":" for entry in entries)
        else:
            spec = acl_text(entries)
        self._change("PUT", path, operation, **({"aclspec": spec} if spec else {}))

    def content_summary(self, path: str) -> ContentSummary:
        """Return what a tree holds. Raises FileNotFound."""
        reply = self._read(self._webhdfs("GET", path, "GETCONTENTSUMMARY"), dict[str, ContentSummary])
        return reply["ContentSummary"]

    def trash_minutes(self) -> int:
        """Return how long the cluster keeps what is moved to the trash; 0: it has none."""
        answer = self._read(self._webhdfs("GET", "/", "GETSERVERDEFAULTS"), dict[str, dict[str, int]])
        return answer["FsServerDefaults"].get("trashInterval", 0)

    def set_quota(self, path: str, names: int | None, space: int | None) -> None:
        """None leaves a limit as it is, -1 takes it away. Raises FileNotFound, AccessDenied, BadRequest."""
        limits = {"namespacequota": names, "storagespacequota": space}
        self._change(
            "PUT", path, "SETQUOTA", **{name: str(limit) for name, limit in limits.items() if limit is not None}
        )

    def quota_usage(self, path: str) -> QuotaUsage:
        """Raises FileNotFound, AccessDenied."""
        return self._read(self._webhdfs("GET", path, "GETQUOTAUSAGE"), dict[str, QuotaUsage])["QuotaUsage"]

    def copy(self, source: str, target: str, *, preserve: bool = False) -> CopiedTree:
        """Raises FileNotFound, FileAlreadyExists, IllegalChange, AccessDenied, SnapshotRefused, ..."""
        request = {"source": source, "target": target, "user": self.user, "preserve": preserve}
        request["request_id"] = new_request_id()
        body = msgspec.json.encode(request)
        answer = self._http.ask("POST", "/v1/copies", body=body, answer_timeout_s=copy_timeout_s)
        return self._read(answer, CopiedTree)

    # -- snapshots ---------------------------------------------------------------------------------

    def allow_snapshots(self, path: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change("PUT", path, "ALLOWSNAPSHOT")

    def disallow_snapshots(self, path: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change("PUT", path, "DISALLOWSNAPSHOT")

    def create_snapshot(self, path: str, name: str | None) -> str:
        """The snapshot's path. Raises SnapshotRefused, AccessDenied, FileNotFound."""
        answer = self._change("PUT", path, "CREATESNAPSHOT", snapshotname=name or "")
        return self._read(answer, dict[str, str])["Path"]

    def rename_snapshot(self, path: str, name: str, new_name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change("PUT", path, "RENAMESNAPSHOT", oldsnapshotname=name, snapshotname=new_name)

    def delete_snapshot(self, path: str, name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        self._change("DELETE", path, "DELETESNAPSHOT", snapshotname=name)

    def snapshot_diff(self, path: str, older: str, newer: str) -> list[SnapshotDifference]:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        answer = self._webhdfs("GET", path, "GETSNAPSHOTDIFF", oldsnapshotname=older, snapshotname=newer)
        return self._read(answer, dict[str, SnapshotDiffReport])["SnapshotDiffReport"].diff_list

    def restore_snapshot(self, path: str, name: str) -> None:
        """Raises SnapshotRefused, AccessDenied, FileNotFound."""
        request = {"path": path, "user": self.user, "snapshot": name, "request_id": new_request_id()}
        self._http.ask("POST", "/v1/snapshots/restore", body=msgspec.json.encode(request))

    def _change(self, method: str, path: str, operation: str, **parameters: str) -> bytes:
        """Under an id of its own, so that the coordinator does it once however often it is asked."""
        return self._webhdfs(method, path, operation, requestid=new_request_id(), **parameters)

    def _webhdfs(self, method: str, path: str, operation: str, **parameters: str) -> bytes:
        parameters = {"op": operation, "user.name": self.user} | parameters
        return self._http.ask(method, "/webhdfs/v1" + quote(path), params=parameters)

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

    # -- data --------------------------------------------------------------------------------------

    def extend(self, path: str, holder: str) -> Leased:
        """Takes the lease of a file, in the name of `holder` (see `new_holder`).

        Raises FileNotFound, FileAlreadyExists, AlreadyBeingCreated, ...
        """
        body = msgspec.json.encode({"path": path, "user": self.user, "holder": holder})
        return self._read(self._http.ask("POST", "/v1/files/extend", body=body), Leased)

    def truncate(self, path: str, length: int) -> bool:
        """Raises FileNotFound, PathIsDirectory, IllegalChange, AlreadyBeingCreated."""
        request = {"path": path, "user": self.user, "length": length, "request_id": new_request_id()}
        return self._boolean(self._http.ask("POST", "/v1/files/truncate", body=msgspec.json.encode(request)))

    def concat(self, target: str, sources: Sequence[str]) -> None:
        """Raises FileNotFound, PathIsDirectory, IllegalChange, AlreadyBeingCreated."""
        request = {"target": target, "sources": sources, "user": self.user, "request_id": new_request_id()}
        self._http.ask("POST", "/v1/files/concat", body=msgspec.json.encode(request))

    def recover_lease(self, path: str) -> bool:
        """Raises FileNotFound, FileAlreadyExists for a directory, AccessDenied."""
        body = msgspec.json.encode({"path": path, "user": self.user})
        return self._boolean(self._http.ask("POST", "/v1/files/recover-lease", body=body))

    def new_holder(self) -> str:
        """Return a unique name for a writer as the holder of a lease."""
        return f"{self.user}@{socket.gethostname()} {uuid.uuid4().hex}"

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

    def _boolean(self, answer: bytes) -> bool:
        return self._read(answer, dict[str, bool]).get("boolean", False)

    def _read(self, answer: bytes, kind: type[S]) -> S:
        try:
            return msgspec.json.decode(answer, type=kind)
        except UNREADABLE as error:
            raise PeerRefused(f"{self.address} does not answer like a peacefs coordinator: {error}") from None
