"""The operations of the coordinator that only WebHDFS has. Pure.

There is one small class per operation, which parses its own parameters. Parameters without meaning here
(`buffersize`) are ignored. Operations that our client has too are messages and rows of the coordinator's table
instead. Requests to gateways are in `redirects`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.errors import Unsupported
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.values.write_classes import parse_write_class

from .attribute_requests import ATTRIBUTE_OPERATIONS
from .delegation_requests import CancelDelegationToken, GetDelegationToken, RenewDelegationToken
from .policy_requests import POLICY_OPERATIONS
from .query import RequestQuery, invalid
from .request import Reader, Request, plain
from .snapshot_requests import SNAPSHOT_OPERATIONS

#: HDFS's default for files.
_FILE_PERMISSION: Final = 0o644
#: Hadoop's CreateFlag values. Only OVERWRITE and APPEND have an effect here.
_CREATE_FLAG = re.compile(
    "CREATE|OVERWRITE|APPEND|SYNC_BLOCK|LAZY_PERSIST|NEW_BLOCK|NO_LOCAL_WRITE|SHOULD_REPLICATE"
    "|IGNORE_CLIENT_LOCALITY|NO_LOCAL_RACK"
)
_FS_ACTION = re.compile("[r-][w-][x-]")


@dataclass(frozen=True, slots=True)
class GetLinkTarget(Request):
    """GETLINKTARGET, which always fails because there are no links."""


@dataclass(frozen=True, slots=True)
class ListStatus(Request):
    """LISTSTATUS"""


@dataclass(frozen=True, slots=True)
class GetBlockLocations(Request):
    offset: int
    length: int

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> GetBlockLocations:
        return cls(path, user, query.integer("offset", 0, 0), query.integer("length", 2**63 - 1, 0))


@dataclass(frozen=True, slots=True)
class GetLocatedBlocks(GetBlockLocations):
    """GET_BLOCK_LOCATIONS, the older form, sent by clients of Hadoop before 3.4, such as Spark 3.5's."""


@dataclass(frozen=True, slots=True)
class GetSpace(Request):
    """GETSTATUS: capacity and use of the whole file system; the path is ignored."""


@dataclass(frozen=True, slots=True)
class GetHomeDirectory(Request):
    """GETHOMEDIRECTORY"""


@dataclass(frozen=True, slots=True)
class GetTrashRoot(Request):
    """GETTRASHROOT"""


@dataclass(frozen=True, slots=True)
class GetTrashRoots(Request):
    """GETTRASHROOTS: the caller's trash, or with `all_users` those of all users."""

    all_users: bool

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> GetTrashRoots:
        return cls(path, user, query.boolean("allusers", False))


@dataclass(frozen=True, slots=True)
class CheckAccess(Request):
    """CHECKACCESS; `action` has the form r-x."""

    action: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> CheckAccess:
        action = query.required("fsaction")
        if not _FS_ACTION.fullmatch(action):
            raise invalid("fsaction", f'"{action}" is not like r-x')
        return cls(path, user, action)


@dataclass(frozen=True, slots=True)
class Redirected(Request):
    """Base of operations that are redirected to a gateway.

    `exclude` are datanodes (host:port) that the client could not reach. With `direct`, the client wants the URL as
    JSON instead of a redirect.
    """

    exclude: frozenset[str]
    direct: bool


@dataclass(frozen=True, slots=True)
class Open(Redirected):
    """OPEN, from `offset`: `length` bytes, or (None) up to the end."""

    offset: int
    length: int | None

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Open:
        length = query.integer("length", -1, 0)
        return cls(path, user, *_redirection(query), query.integer("offset", 0, 0), None if length < 0 else length)


@dataclass(frozen=True, slots=True)
class GetChecksum(Redirected):
    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> GetChecksum:
        return cls(path, user, *_redirection(query))


@dataclass(frozen=True, slots=True)
class Create(Redirected):
    file: NewFile

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Create:
        flags = frozenset(flag.strip().upper() for flag in query.names("createflag"))
        for unknown in sorted(flag for flag in flags if not _CREATE_FLAG.fullmatch(flag)):
            raise invalid("createflag", f"No enum constant org.apache.hadoop.fs.CreateFlag.{unknown}")
        if "APPEND" in flags:
            raise Unsupported("createflag=append is not supported: a file that exists is extended with op=APPEND")
        file = NewFile(
            path=path,
            user=user,
            overwrite="OVERWRITE" in flags or query.boolean("overwrite", False),
            permission=query.permission("permission", _FILE_PERMISSION),
            replication=query.integer("replication", 0, 1),
            block_bytes=query.integer("blocksize", 0, 1),
            create_parent=query.boolean("createparent", True),
            unmasked=unmasked(query),
            write_class=_write_class(query),
        )
        return cls(path, user, *_redirection(query), file)


@dataclass(frozen=True, slots=True)
class Append(Redirected):
    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Append:
        return cls(path, user, *_redirection(query))


def _write_class(query: RequestQuery) -> str:
    """Return the class of `writeclass`, which stock clients do not send. Raises BadRequest for an unknown one."""
    word = (query.text("writeclass") or "").lower()
    return parse_write_class(word).word if word else ""


def unmasked(query: RequestQuery) -> int | None:
    """Return the permission before the client's umask, which is used if a default ACL is inherited."""
    said = query.permission("unmaskedpermission", -1)
    return None if said < 0 else said


def _redirection(query: RequestQuery) -> tuple[frozenset[str], bool]:
    return query.names("excludedatanodes"), query.boolean("noredirect", False)


#: The operations that only WebHDFS has, by HTTP method.
WEBHDFS_OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "GET": {
        "LISTSTATUS": plain(ListStatus),
        "GETFILEBLOCKLOCATIONS": GetBlockLocations.read,
        "GET_BLOCK_LOCATIONS": GetLocatedBlocks.read,
        "GETSTATUS": plain(GetSpace),
        "GETHOMEDIRECTORY": plain(GetHomeDirectory),
        "GETTRASHROOT": plain(GetTrashRoot),
        "GETTRASHROOTS": GetTrashRoots.read,
        "GETLINKTARGET": plain(GetLinkTarget),
        "CHECKACCESS": CheckAccess.read,
        "GETFILECHECKSUM": GetChecksum.read,
        "OPEN": Open.read,
        "GETDELEGATIONTOKEN": GetDelegationToken.read,
        **ATTRIBUTE_OPERATIONS["GET"],
        **SNAPSHOT_OPERATIONS["GET"],
        **POLICY_OPERATIONS["GET"],
    },
    "PUT": {
        "CREATE": Create.read,
        "RENEWDELEGATIONTOKEN": RenewDelegationToken.read,
        "CANCELDELEGATIONTOKEN": CancelDelegationToken.read,
        **POLICY_OPERATIONS["PUT"],
    },
    "POST": {
        "APPEND": Append.read,
        **POLICY_OPERATIONS["POST"],
    },
}
