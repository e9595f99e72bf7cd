"""The WebHDFS operations of the coordinator. Parses an ASGI scope into a request. Pure.

There is one small class per operation, which parses its own parameters. `OPERATIONS` lists them all. Parameters
without meaning here (`buffersize`) are ignored. Requests to gateways are in `redirects`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from peacefs.protocol.asgi import Scope
from peacefs.protocol.errors import BadRequest, Unsupported
from peacefs.protocol.limits import replication_default
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.values.account_names import check_account_name

from .acl_requests import ACL_OPERATIONS
from .attribute_requests import ATTRIBUTE_OPERATIONS
from .delegation_requests import CancelDelegationToken, GetDelegationToken, RenewDelegationToken
from .policy_requests import POLICY_OPERATIONS
from .query import RequestQuery, find_operation, invalid, path_of
from .request import Reader, Request, asker, plain
from .snapshot_requests import SNAPSHOT_OPERATIONS

#: HDFS's defaults for files and for directories.
_FILE_PERMISSION: Final = 0o644
_DIRECTORY_PERMISSION: Final = 0o755
#: Hadoop's CreateFlag values. Only OVERWRITE and APPEND have an effect here.
_CREATE_FLAG = re.compile(
    "CREATE|OVERWRITE|APPEND|SYNC_BLOCK|LAZY_PERSIST|NEW_BLOCK|NO_LOCAL_WRITE|SHOULD_REPLICATE"
    "|IGNORE_CLIENT_LOCALITY|NO_LOCAL_RACK"
)
#: HDFS's value for a quota that should not change.
_QUOTA_UNCHANGED: Final = 2**63 - 1
_FS_ACTION = re.compile("[r-][w-][x-]")


@dataclass(frozen=True, slots=True)
class GetStatus(Request):
    """GETFILESTATUS, and GETFILELINKSTATUS, because there are no links."""


@dataclass(frozen=True, slots=True)
class GetLinkTarget(Request):
    """GETLINKTARGET, which always fails because there are no links."""


@dataclass(frozen=True, slots=True)
class ListStatus(Request):
    """LISTSTATUS"""


@dataclass(frozen=True, slots=True)
class ListStatusBatch(Request):
    """LISTSTATUS_BATCH: a page of entries after a name."""

    start_after: str | None

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> ListStatusBatch:
        return cls(path, user, query.text("startafter"))


@dataclass(frozen=True, slots=True)
class GetContentSummary(Request):
    """GETCONTENTSUMMARY"""


@dataclass(frozen=True, slots=True)
class GetQuotaUsage(Request):
    """GETQUOTAUSAGE"""


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
class GetServerDefaults(Request):
    """GETSERVERDEFAULTS"""


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
            unmasked=_unmasked(query),
        )
        return cls(path, user, *_redirection(query), file)


@dataclass(frozen=True, slots=True)
class Append(Redirected):
    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Append:
        return cls(path, user, *_redirection(query))


@dataclass(frozen=True, slots=True)
class Truncate(Request):
    """TRUNCATE, to `length` bytes."""

    length: int

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Truncate:
        query.required("newlength")
        return cls(path, user, query.integer("newlength", 0, 0))


@dataclass(frozen=True, slots=True)
class Concatenate(Request):
    """CONCAT: moves the contents of `sources` to the end of the file."""

    sources: tuple[str, ...]

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Concatenate:
        return cls(path, user, query.sequence("sources"))


@dataclass(frozen=True, slots=True)
class MakeDirectories(Request):
    permission: int
    unmasked: int | None = None

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> MakeDirectories:
        return cls(path, user, query.permission("permission", _DIRECTORY_PERMISSION), _unmasked(query))


@dataclass(frozen=True, slots=True)
class Rename(Request):
    """RENAME. `options` are from `renameoptions`, in capitals; without any it is HDFS's older rename.

    Stock clients use `TO_TRASH` to move files to the trash; it never replaces a file.
    """

    destination: str
    options: frozenset[str]

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Rename:
        options = frozenset(option.strip().upper() for option in query.names("renameoptions"))
        if unknown := options - {"NONE", "OVERWRITE", "TO_TRASH"}:
            constant = f"org.apache.hadoop.fs.Options.Rename.{min(unknown)}"
            raise invalid("renameoptions", f"No enum constant {constant}")
        return cls(path, user, query.required("destination"), options)


@dataclass(frozen=True, slots=True)
class Delete(Request):
    recursive: bool

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> Delete:
        return cls(path, user, query.boolean("recursive", False))


@dataclass(frozen=True, slots=True)
class SetTimes(Request):
    """SETTIMES, in milliseconds since 1970; None means unchanged."""

    modified_ms: int | None
    accessed_ms: int | None

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetTimes:
        modified, accessed = (query.integer(name, -1, -1) for name in ("modificationtime", "accesstime"))
        return cls(path, user, None if modified < 0 else modified, None if accessed < 0 else accessed)


@dataclass(frozen=True, slots=True)
class SetPermission(Request):
    permission: int

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetPermission:
        return cls(path, user, query.permission("permission", _DIRECTORY_PERMISSION))


@dataclass(frozen=True, slots=True)
class SetOwner(Request):
    """SETOWNER; None means unchanged."""

    owner: str | None
    group: str | None

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetOwner:
        owner, group = query.text("owner"), query.text("group")
        if owner is None and group is None:
            raise BadRequest("Both owner and group are empty.")
        for what, name in (("owner", owner), ("group", group)):
            if name is not None:
                check_account_name(what, name)
        return cls(path, user, owner, group)


@dataclass(frozen=True, slots=True)
class SetReplication(Request):
    replication: int

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetReplication:
        return cls(path, user, query.integer("replication", replication_default, 1))


@dataclass(frozen=True, slots=True)
class SetQuota(Request):
    """SETQUOTA, for names and bytes; None means unchanged, -1 removes a quota."""

    names: int | None
    space: int | None

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetQuota:
        names, space = (
            None if value == _QUOTA_UNCHANGED else value
            for value in (
                query.integer(name, _QUOTA_UNCHANGED, -1) for name in ("namespacequota", "storagespacequota")
            )
        )
        return cls(path, user, names, space)


def _unmasked(query: RequestQuery) -> int | None:
    """Return the permission before the client's umask, which is used if a default ACL is inherited."""
    said = query.permission("unmaskedpermission", -1)
    return None if said < 0 else said


def _redirection(query: RequestQuery) -> tuple[frozenset[str], bool]:
    return query.names("excludedatanodes"), query.boolean("noredirect", False)


#: All supported operations, by HTTP method.
OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "GET": {
        "GETFILESTATUS": plain(GetStatus),
        "GETFILELINKSTATUS": plain(GetStatus),
        "LISTSTATUS": plain(ListStatus),
        "LISTSTATUS_BATCH": ListStatusBatch.read,
        "GETCONTENTSUMMARY": plain(GetContentSummary),
        "GETQUOTAUSAGE": plain(GetQuotaUsage),
        "GETFILEBLOCKLOCATIONS": GetBlockLocations.read,
        "GET_BLOCK_LOCATIONS": GetLocatedBlocks.read,
        "GETSTATUS": plain(GetSpace),
        "GETSERVERDEFAULTS": plain(GetServerDefaults),
        "GETHOMEDIRECTORY": plain(GetHomeDirectory),
        "GETTRASHROOT": plain(GetTrashRoot),
        "GETTRASHROOTS": GetTrashRoots.read,
        "GETLINKTARGET": plain(GetLinkTarget),
        "CHECKACCESS": CheckAccess.read,
        "GETFILECHECKSUM": GetChecksum.read,
        "OPEN": Open.read,
        "GETDELEGATIONTOKEN": GetDelegationToken.read,
        **ACL_OPERATIONS["GET"],
        **ATTRIBUTE_OPERATIONS["GET"],
        **SNAPSHOT_OPERATIONS["GET"],
        **POLICY_OPERATIONS["GET"],
    },
    "PUT": {
        "CREATE": Create.read,
        "MKDIRS": MakeDirectories.read,
        "RENAME": Rename.read,
        "SETTIMES": SetTimes.read,
        "SETPERMISSION": SetPermission.read,
        "SETOWNER": SetOwner.read,
        "SETREPLICATION": SetReplication.read,
        "SETQUOTA": SetQuota.read,
        "RENEWDELEGATIONTOKEN": RenewDelegationToken.read,
        "CANCELDELEGATIONTOKEN": CancelDelegationToken.read,
        **ACL_OPERATIONS["PUT"],
        **ATTRIBUTE_OPERATIONS["PUT"],
        **SNAPSHOT_OPERATIONS["PUT"],
        **POLICY_OPERATIONS["PUT"],
    },
    "POST": {
        "APPEND": Append.read,
        "TRUNCATE": Truncate.read,
        "CONCAT": Concatenate.read,
        **POLICY_OPERATIONS["POST"],
    },
    "DELETE": {
        "DELETE": Delete.read,
        **SNAPSHOT_OPERATIONS["DELETE"],
    },
}


def parse_request(scope: Scope) -> Request:
    """Parse an HTTP request into an operation. Raises only BadRequest, Unsupported or AccessDenied."""
    query = RequestQuery(scope["query_string"])
    read = find_operation(scope["method"], query, OPERATIONS)
    request = read(path_of(scope), asker(scope, query), query)
    request_id = query.text("requestid")
    return request if request_id is None else replace(request, request_id=request_id)
