"""Operations on names over HDFS's own protocol, with outcomes as the oracle `name_tree` names them."""

from __future__ import annotations

import getpass
import time
from typing import Any

from google.protobuf.message import Message
from oracles.name_tree import SUPERUSER, Call, Outcome, Refused, shown

from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import FsPermissionProto, HdfsFileStatusProto

from .hadoop_rpc import HadoopRpc, RemoteError, address_of
from .name_doors import NotSent, Unknown, WebHdfsDoor

_RETRY_S, _PAUSE_S = 20.0, 0.05
_RETRIABLE = frozenset(("RetriableException", "SafeModeException", "StandbyException"))
_UNCHANGED = 2**63 - 1


class HdfsDoor:
    """A client of HDFS, which sends a call again under the same id. Data go over WebHDFS."""

    name = "HDFS"

    def __init__(self, uri: str, data: WebHdfsDoor) -> None:
        self._uri = uri
        self._data = data
        self._clients: dict[str, HadoopRpc] = {}

    def perform(self, call: Call) -> Outcome:
        if call.op in ("create", "read"):
            return self._data.perform(call)
        try:
            return self._asked(call)
        except RemoteError as error:
            name = error.class_name.rpartition(".")[2].rpartition("$")[2]
            if name in _RETRIABLE:
                raise Unknown(str(error), time.monotonic()) from None
            return Refused(name)

    def _asked(self, call: Call) -> Outcome:
        path = shown(call.path)
        match call.op:
            case "mkdirs":
                masked = FsPermissionProto(perm=call.permission or 0o755)
                made = pb.MkdirsRequestProto(src=path, masked=masked, createParent=True)
                return bool(self._call(call.user, "mkdirs", made, pb.MkdirsResponseProto).result)
            case "rename":
                renamed = pb.Rename2RequestProto(src=path, dst=shown(call.target), overwriteDest=call.overwrite)
                self._call(call.user, "rename2", renamed, pb.Rename2ResponseProto)
            case "delete":
                deleted = pb.DeleteRequestProto(src=path, recursive=call.recursive)
                return bool(self._call(call.user, "delete", deleted, pb.DeleteResponseProto).result)
            case "stat":
                asked = pb.GetFileInfoRequestProto(src=path)
                found = self._call(call.user, "getFileInfo", asked, pb.GetFileInfoResponseProto)
                return _status(found.fs) if found.HasField("fs") else Refused("FileNotFoundException")
            case "list":
                listed = pb.GetListingRequestProto(src=path, startAfter=b"", needLocation=False)
                page = self._call(call.user, "getListing", listed, pb.GetListingResponseProto)
                if not page.HasField("dirList"):
                    return Refused("FileNotFoundException")
                # A file lists itself, without a name.
                return tuple(one.path.decode() or call.path[-1] for one in page.dirList.partialListing)
            case "set_permission":
                changed = pb.SetPermissionRequestProto(
                    src=path, permission=FsPermissionProto(perm=call.permission)
                )
                self._call(call.user, "setPermission", changed, pb.SetPermissionResponseProto)
            case "set_owner":
                owned = pb.SetOwnerRequestProto(src=path, username=_account(call.owner))
                self._call(call.user, "setOwner", owned, pb.SetOwnerResponseProto)
            case "set_quota":
                limit = call.limit & (2**64 - 1)
                limited = pb.SetQuotaRequestProto(path=path, namespaceQuota=limit, storagespaceQuota=_UNCHANGED)
                self._call(call.user, "setQuota", limited, pb.SetQuotaResponseProto)
            case other:
                raise AssertionError(other)
        return True

    def _call(self, user: str, method: str, request: Message, answer: Any) -> Any:
        deadline = time.monotonic() + _RETRY_S
        client, is_sent = self._client(user, deadline), False
        while True:
            try:
                if is_sent:
                    client.connect()
                return client.call(method, request, answer, again=is_sent)
            except RemoteError as error:
                if error.class_name.rpartition(".")[2] not in _RETRIABLE or time.monotonic() > deadline:
                    raise
            except OSError as fault:
                if time.monotonic() > deadline:
                    raise Unknown(repr(fault), time.monotonic()) from None
            is_sent = True
            time.sleep(_PAUSE_S)

    def _client(self, user: str, deadline: float) -> HadoopRpc:
        while user not in self._clients:
            try:
                self._clients[user] = HadoopRpc(*address_of(self._uri), _account(user))
            except OSError as fault:
                if time.monotonic() > deadline:
                    raise NotSent(str(fault)) from None
                time.sleep(_PAUSE_S)
        return self._clients[user]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def _account(user: str) -> str:
    return getpass.getuser() if user == SUPERUSER else user


def _status(found: HdfsFileStatusProto) -> Outcome:
    owner = SUPERUSER if found.owner == getpass.getuser() else found.owner
    length = "directory" if found.fileType == HdfsFileStatusProto.IS_DIR else found.length
    return (length, owner, found.permission.perm)
