"""The operations that a client asks of the name side, as values. Pure: scope in, request or BadRequest out.

One small class an operation, which reads its own parameters; the table at the end holds them all. What the
data side is asked is in `webhdfs_redirects`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .asgi import Scope
from .errors import BadRequest, Unsupported
from .limits import replication_default
from .webhdfs_query import Query, checked_path, invalid, path_of

#: What HDFS gives when nobody says: files, directories.
_FILE_PERMISSION: Final = 0o644
_DIRECTORY_PERMISSION: Final = 0o755
_CREATE_FLAGS: Final = frozenset(
    "CREATE OVERWRITE APPEND SYNC_BLOCK LAZY_PERSIST NEW_BLOCK NO_LOCAL_WRITE SHOULD_REPLICATE "
    "IGNORE_CLIENT_LOCALITY NO_LOCAL_RACK".split()
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What every request says: of which path, and who asks."""

    path: str
    user: str


@dataclass(frozen=True, slots=True)
class Request:
    """Base of all."""

    asked: Asked

    @property
    def path(self) -> str:
        return self.asked.path

    @property
    def user(self) -> str:
        return self.asked.user


@dataclass(frozen=True, slots=True)
class GetStatus(Request):
    """GETFILESTATUS, and GETFILELINKSTATUS: there are no links."""


@dataclass(frozen=True, slots=True)
class ListStatus(Request):
    """LISTSTATUS"""


@dataclass(frozen=True, slots=True)
class ListStatusBatch(Request):
    """LISTSTATUS_BATCH: the page after a name."""

    start_after: str | None

    @classmethod
    def read(cls, asked: Asked, query: Query) -> ListStatusBatch:
        return cls(asked, query.text("startafter"))


@dataclass(frozen=True, slots=True)
class GetContentSummary(Request):
    """GETCONTENTSUMMARY"""


@dataclass(frozen=True, slots=True)
class GetBlockLocations(Request):
    """GETFILEBLOCKLOCATIONS"""

    offset: int
    length: int

    @classmethod
    def read(cls, asked: Asked, query: Query) -> GetBlockLocations:
        return cls(asked, query.integer("offset", 0, 0), query.integer("length", 2**63 - 1, 0))


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
class CheckAccess(Request):
    """CHECKACCESS"""

    @classmethod
    def read(cls, asked: Asked, query: Query) -> CheckAccess:
        action = query.required("fsaction")
        if len(action) != 3 or any(letter not in (right, "-") for letter, right in zip(action, "rwx", strict=True)):
            raise invalid("fsaction", f'"{action}" is not like r-x')
        return cls(asked)


@dataclass(frozen=True, slots=True)
class Redirected(Request):
    """Base of what the data side does: `exclude` are datanodes, as host:port, that the client could not reach.

    With `direct` the client wants the second URL in JSON and not as a redirect.
    """

    exclude: frozenset[str]
    direct: bool


@dataclass(frozen=True, slots=True)
class Open(Redirected):
    """OPEN, from `offset` on, `length` bytes or (None) all."""

    offset: int
    length: int | None

    @classmethod
    def read(cls, asked: Asked, query: Query) -> Open:
        length = query.integer("length", -1, 0)
        return cls(asked, *_redirection(query), query.integer("offset", 0, 0), None if length < 0 else length)


@dataclass(frozen=True, slots=True)
class Create(Redirected):
    """CREATE. Zero for `replication` or `block_bytes` means the server's default."""

    overwrite: bool
    permission: int
    replication: int
    block_bytes: int
    create_parent: bool

    @classmethod
    def read(cls, asked: Asked, query: Query) -> Create:
        flags = frozenset(flag.strip().upper() for flag in query.names("createflag"))
        if unknown := flags - _CREATE_FLAGS:
            raise invalid("createflag", f"No enum constant {', '.join(sorted(unknown))}")
        if "APPEND" in flags:
            raise Unsupported("createflag=append is not supported: files cannot be appended to")
        query.permission("unmaskedpermission", _FILE_PERMISSION)
        return cls(
            asked,
            *_redirection(query),
            overwrite="OVERWRITE" in flags or query.boolean("overwrite", False),
            permission=query.permission("permission", _FILE_PERMISSION),
            replication=query.integer("replication", 0, 1),
            block_bytes=query.integer("blocksize", 0, 1),
            create_parent=query.boolean("createparent", True),
        )


@dataclass(frozen=True, slots=True)
class MakeDirectories(Request):
    """MKDIRS"""

    permission: int

    @classmethod
    def read(cls, asked: Asked, query: Query) -> MakeDirectories:
        query.permission("unmaskedpermission", _DIRECTORY_PERMISSION)
        return cls(asked, query.permission("permission", _DIRECTORY_PERMISSION))


@dataclass(frozen=True, slots=True)
class Rename(Request):
    """RENAME. `options` are those of `renameoptions`, in capitals; none at all is HDFS's older rename."""

    destination: str
    options: frozenset[str]

    @classmethod
    def read(cls, asked: Asked, query: Query) -> Rename:
        options = frozenset(option.strip().upper() for option in query.names("renameoptions"))
        if unknown := options - {"NONE", "OVERWRITE"}:
            raise invalid("renameoptions", f"No enum constant {', '.join(sorted(unknown))}")
        return cls(asked, query.path("destination"), options)


@dataclass(frozen=True, slots=True)
class Delete(Request):
    """DELETE"""

    recursive: bool

    @classmethod
    def read(cls, asked: Asked, query: Query) -> Delete:
        return cls(asked, query.boolean("recursive", False))


@dataclass(frozen=True, slots=True)
class SetTimes(Request):
    """SETTIMES, in milliseconds since 1970; None leaves one as it is."""

    modified_ms: int | None
    accessed_ms: int | None

    @classmethod
    def read(cls, asked: Asked, query: Query) -> SetTimes:
        modified, accessed = (query.integer(name, -1, -1) for name in ("modificationtime", "accesstime"))
        return cls(asked, None if modified < 0 else modified, None if accessed < 0 else accessed)


@dataclass(frozen=True, slots=True)
class SetPermission(Request):
    """SETPERMISSION"""

    permission: int

    @classmethod
    def read(cls, asked: Asked, query: Query) -> SetPermission:
        return cls(asked, query.permission("permission", _DIRECTORY_PERMISSION))


@dataclass(frozen=True, slots=True)
class SetOwner(Request):
    """SETOWNER; None leaves one as it is."""

    owner: str | None
    group: str | None

    @classmethod
    def read(cls, asked: Asked, query: Query) -> SetOwner:
        owner, group = query.text("owner"), query.text("group")
        if owner is None and group is None:
            raise BadRequest("Both owner and group are empty.")
        return cls(asked, owner, group)


@dataclass(frozen=True, slots=True)
class SetReplication(Request):
    """SETREPLICATION"""

    replication: int

    @classmethod
    def read(cls, asked: Asked, query: Query) -> SetReplication:
        return cls(asked, query.integer("replication", replication_default, 1))


def _redirection(query: Query) -> tuple[frozenset[str], bool]:
    return query.names("excludedatanodes"), query.boolean("noredirect", False)


def _plain(kind: Callable[[Asked], Request]) -> Callable[[Asked, Query], Request]:
    """For an operation without parameters."""
    return lambda asked, _query: kind(asked)


#: Every operation that is supported, under the HTTP method that it is asked with.
OPERATIONS: Final[dict[str, dict[str, Callable[[Asked, Query], Request]]]] = {
    "GET": {
        "GETFILESTATUS": _plain(GetStatus),
        "GETFILELINKSTATUS": _plain(GetStatus),
        "LISTSTATUS": _plain(ListStatus),
        "LISTSTATUS_BATCH": ListStatusBatch.read,
        "GETCONTENTSUMMARY": _plain(GetContentSummary),
        "GETFILEBLOCKLOCATIONS": GetBlockLocations.read,
        "GETSERVERDEFAULTS": _plain(GetServerDefaults),
        "GETHOMEDIRECTORY": _plain(GetHomeDirectory),
        "GETTRASHROOT": _plain(GetTrashRoot),
        "CHECKACCESS": CheckAccess.read,
        "OPEN": Open.read,
    },
    "PUT": {
        "CREATE": Create.read,
        "MKDIRS": MakeDirectories.read,
        "RENAME": Rename.read,
        "SETTIMES": SetTimes.read,
        "SETPERMISSION": SetPermission.read,
        "SETOWNER": SetOwner.read,
        "SETREPLICATION": SetReplication.read,
    },
    "DELETE": {
        "DELETE": Delete.read,
    },
    "POST": {},
}

#: What HDFS has besides: named as not supported, so that nobody takes it for a misspelling.
ELSEWHERE: Final = frozenset(
    """
    ALLOWSNAPSHOT APPEND CANCELDELEGATIONTOKEN CONCAT CREATESNAPSHOT CREATESYMLINK DELETESNAPSHOT
    DISALLOWSNAPSHOT ENABLEECPOLICY DISABLEECPOLICY GETACLSTATUS GETALLSTORAGEPOLICY GETDELEGATIONTOKEN
    GETECCODECS GETECPOLICIES GETECPOLICY GETFILECHECKSUM GETLINKTARGET GETQUOTAUSAGE GETSNAPSHOTDIFF
    GETSNAPSHOTDIFFLISTING GETSNAPSHOTLIST GETSNAPSHOTTABLEDIRECTORYLIST GETSTATUS GETSTORAGEPOLICY
    GETTRASHROOTS GETXATTRS LISTXATTRS MODIFYACLENTRIES REMOVEACL REMOVEACLENTRIES REMOVEDEFAULTACL
    REMOVEXATTR RENAMESNAPSHOT RENEWDELEGATIONTOKEN SATISFYSTORAGEPOLICY SETACL SETECPOLICY SETQUOTA
    SETQUOTABYSTORAGETYPE SETSTORAGEPOLICY SETXATTR TRUNCATE UNSETECPOLICY UNSETSTORAGEPOLICY
    """.split()
)


def parse_request(scope: Scope) -> Request:
    """What an HTTP request asks for. Raises BadRequest, Unsupported or AccessDenied, and nothing else."""
    query = Query(scope["query_string"])
    name = operation_of(scope, query, OPERATIONS)
    return OPERATIONS[scope["method"]][name](Asked(path_of(scope), query.user()), query)


def operation_of(scope: Scope, query: Query, known: dict[str, dict[str, object]]) -> str:
    raise NotImplementedError
