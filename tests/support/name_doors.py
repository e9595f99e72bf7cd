"""Operations on names through the doors of a coordinator, with outcomes as the oracle `name_tree` names them."""

from __future__ import annotations

import getpass
import http.client
import json
import time
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from oracles.name_tree import READS, SUPERUSER, Call, Outcome, Refused, shown

from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import FileChanged, PeacefsError

#: The time for which the product's client retries.
_RETRY_S, _PAUSE_S = 20.0, 0.05
_ANSWER_S = 60.0
#: Errors after which the caller must retry. The operation may have taken effect.
_RETRIABLE = frozenset(("RetriableException", "SafeModeException", "StandbyException", "BlockMissingException"))


class Unknown(Exception):
    """The outcome is unknown. `since` is the last time at which the operation can have reached a coordinator."""

    def __init__(self, why: str, since: float) -> None:
        super().__init__(why)
        self.since = since


class NotSent(Exception):
    """The operation never left this process."""


class Door(Protocol):
    """One client's way to the coordinator. Not thread-safe."""

    name: str

    def perform(self, call: Call) -> Outcome:
        """Perform a call and return its outcome. Raises Unknown, NotSent."""

    def close(self) -> None: ...


class FramesDoor:
    """The Python client, which retries requests with their ids over new connections."""

    name = "frames"

    def __init__(self, address: str) -> None:
        self._address = address
        self._clients: dict[str, PeaceFileSystem] = {}

    def perform(self, call: Call) -> Outcome:
        try:
            return self._asked(self._client(call.user), call)
        except PeacefsError as error:
            if error.retriable or (isinstance(error, FileChanged) and call.op in READS):
                raise Unknown(f"{error.code}: {error}", time.monotonic()) from None
            return Refused(_simple(error.hadoop_class))

    def _client(self, user: str) -> PeaceFileSystem:
        if user not in self._clients:
            self._clients[user] = PeaceFileSystem(self._address, user=_account(user))
        return self._clients[user]

    def _asked(self, files: PeaceFileSystem, call: Call) -> Outcome:
        path = shown(call.path)
        match call.op:
            case "mkdirs":
                files.mkdirs(path, call.permission or 0o755)
            case "create":
                files.write(path, call.content.encode(), overwrite=call.overwrite, replication=1)
            case "rename":
                files.rename(path, shown(call.target), overwrite=call.overwrite)
            case "delete":
                return files.delete(path, recursive=call.recursive)
            case "read":
                return files.read(path).decode()
            case "stat":
                return _status(files.status(path))
            case "list":
                return tuple(entry.path.rpartition("/")[2] for entry in files.list(path))
            case "set_permission":
                files.set_permission(path, call.permission)
            case "set_owner":
                files.set_owner(path, _account(call.owner))
            case "set_quota":
                files.quotas.set(path, names=call.limit)
            case other:
                raise AssertionError(other)
        return True

    def close(self) -> None:
        for files in self._clients.values():
            files.close()


class WebHdfsDoor:
    """Bare HTTP, one connection per request. Changes are not retried, since they have no request ids."""

    name = "WebHDFS"

    def __init__(self, address: str) -> None:
        self._netloc = urlsplit(address).netloc

    def perform(self, call: Call) -> Outcome:
        method, op, parameters = _WEBHDFS[call.op](call)
        query = {"op": op, "user.name": _account(call.user), **parameters}
        url = f"/webhdfs/v1{quote(shown(call.path))}?{urlencode(query)}"
        if call.op == "create":
            return self._created(url, call.content.encode())
        status, body, since = self._ask(self._netloc, method, url)
        if status == 307:
            there = urlsplit(str(body["location"]))
            status, body, since = self._ask(there.netloc, "GET", f"{there.path}?{there.query}")
        if status != 200:
            return _refused(status, body, since)
        return _answer(call, body)

    def _created(self, url: str, data: bytes) -> Outcome:
        status, body, since = self._ask(self._netloc, "PUT", url)
        if status == 307:
            there = urlsplit(str(body["location"]))
            try:
                status, body, since = self._ask(there.netloc, "PUT", f"{there.path}?{there.query}", data)
            except Unknown as unknown:
                # The datanode may still be calling a coordinator.
                raise Unknown(str(unknown), time.monotonic()) from None
            since = time.monotonic()
        return True if status == 201 else _refused(status, body, since)

    def _ask(self, netloc: str, method: str, url: str, data: bytes = b"") -> tuple[int, dict[str, Any], float]:
        """Return the status, the body, and the time at which the connection was open."""
        deadline = time.monotonic() + _RETRY_S
        while True:
            connection = http.client.HTTPConnection(netloc, timeout=_ANSWER_S)
            try:
                connection.connect()
            except OSError as fault:
                connection.close()
                if time.monotonic() > deadline:
                    raise NotSent(str(fault)) from None
                time.sleep(_PAUSE_S)
                continue
            since = time.monotonic()
            try:
                connection.request(method, url, body=data if method == "PUT" else None)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as fault:
                raise Unknown(repr(fault), since) from None
            finally:
                connection.close()
            if answer.status == 307:
                return 307, {"location": answer.headers["location"]}, since
            if "json" in (answer.headers["content-type"] or ""):
                return answer.status, json.loads(content), since
            return answer.status, {"content": content}, since

    def close(self) -> None:
        pass


def _refused(status: int, body: dict[str, Any], since: float) -> Refused:
    assert "RemoteException" in body, f"status {status} without a RemoteException: {body}"
    remote = body["RemoteException"]
    name = str(remote["exception"])
    if name in _RETRIABLE or status >= 500 or remote.get("peacefsCode") in ("NoDatanodes", "FileChanged"):
        raise Unknown(f"{name}: {remote['message']}", since)
    return Refused(_simple(name))


def _simple(hadoop_class: str) -> str:
    return hadoop_class.rpartition(".")[2].rpartition("$")[2]


def _account(user: str) -> str:
    return getpass.getuser() if user == SUPERUSER else user


def _shown_owner(owner: str) -> str:
    return SUPERUSER if owner == getpass.getuser() else owner


def _status(found: FileStatus) -> Outcome:
    return ("directory" if found.is_directory else found.length, _shown_owner(found.owner), found.permission)


def _answer(call: Call, body: dict[str, Any]) -> Outcome:
    match call.op:
        case "read":
            return bytes(body["content"]).decode()
        case "stat":
            found = body["FileStatus"]
            length = "directory" if found["type"] == "DIRECTORY" else int(found["length"])
            return (length, _shown_owner(found["owner"]), int(found["permission"], 8))
        case "list":
            entries = body["FileStatuses"]["FileStatus"]
            # A file lists itself, without a name.
            return tuple(str(entry["pathSuffix"]) or call.path[-1] for entry in entries)
        case "delete" | "mkdirs":
            return bool(body["boolean"])
        case _:
            return True


#: Method, operation and parameters of each call.
_WEBHDFS: dict[str, Callable[[Call], tuple[str, str, dict[str, str]]]] = {
    "mkdirs": lambda call: ("PUT", "MKDIRS", {"permission": f"{call.permission:o}"} if call.permission else {}),
    "create": lambda call: ("PUT", "CREATE", {"overwrite": str(call.overwrite).lower(), "replication": "1"}),
    "rename": lambda call: (
        "PUT",
        "RENAME",
        {"destination": shown(call.target), "renameoptions": "OVERWRITE" if call.overwrite else "NONE"},
    ),
    "delete": lambda call: ("DELETE", "DELETE", {"recursive": str(call.recursive).lower()}),
    "read": lambda _call: ("GET", "OPEN", {}),
    "stat": lambda _call: ("GET", "GETFILESTATUS", {}),
    "list": lambda _call: ("GET", "LISTSTATUS", {}),
    "set_permission": lambda call: ("PUT", "SETPERMISSION", {"permission": f"{call.permission:o}"}),
    "set_owner": lambda call: ("PUT", "SETOWNER", {"owner": _account(call.owner)}),
    "set_quota": lambda call: ("PUT", "SETQUOTA", {"namespacequota": str(call.limit)}),
}
