"""The tree of all errors. Each class has an HTTP status, a Hadoop exception class and says if a retry may help.

    PeacefsError                     500  java.io.IOException
    ├── PathError
    │   ├── FileNotFound             404  java.io.FileNotFoundException
    │   ├── FileAlreadyExists        403  org.apache.hadoop.fs.FileAlreadyExistsException
    │   ├── ParentNotDirectory       403  org.apache.hadoop.fs.ParentNotDirectoryException
    │   ├── PathIsNotEmptyDirectory  403  org.apache.hadoop.fs.PathIsNotEmptyDirectoryException
    │   ├── PathIsNotDirectory       403  org.apache.hadoop.fs.PathIsNotDirectoryException
    │   ├── PathIsDirectory          404  java.io.FileNotFoundException, as in HDFS
    │   ├── FileChanged              403  java.io.IOException
    │   ├── PathLimitExceeded        403  java.io.IOException, as in HDFS
    │   │   ├── NameTooLong          403  org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLong...
    │   │   └── DirectoryFull        403  org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItems...
    │   ├── InvalidAcl               403  org.apache.hadoop.hdfs.protocol.AclException
    │   ├── NoErasureCodingPolicy    403  org.apache.hadoop.hdfs.protocol.NoECPolicySetException
    │   ├── SnapshotRefused          403  org.apache.hadoop.hdfs.protocol.SnapshotException
    │   └── SnapshotIsReadOnly       403  org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException
    ├── QuotaExceeded
    │   ├── NamesQuotaExceeded       403  org.apache.hadoop.hdfs.protocol.NSQuotaExceededException
    │   └── BytesQuotaExceeded       403  org.apache.hadoop.hdfs.protocol.DSQuotaExceededException
    ├── RenameRefused                403  java.io.IOException
    ├── LeaseError
    │   ├── AlreadyBeingCreated      403  org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException
    │   └── LeaseExpired             403  org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException
    │       └── RunSuperseded        403  the same, as HDFS answers a writer that was fenced off
    ├── Unauthenticated              401  org.apache.hadoop.security.AccessControlException
    ├── AccessDenied                 403  org.apache.hadoop.security.AccessControlException
    │   ├── PathThroughFile          403  the same (a component before the last is a file)
    │   ├── ImpersonationRefused     403  org.apache.hadoop.security.authorize.AuthorizationException
    │   └── TokenExpired             403  the same (ask the coordinator for a new token)
    ├── BadRequest                   400  java.lang.IllegalArgumentException
    │   ├── InvalidTopology          400  java.lang.IllegalArgumentException
    │   ├── InvalidQuery             400  java.lang.IllegalArgumentException
    │   └── IllegalChange            400  org.apache.hadoop.HadoopIllegalArgumentException
    ├── Unsupported                  400  java.lang.UnsupportedOperationException
    │   ├── NoSuchProtocol           400  org.apache.hadoop.ipc.RpcNoSuchProtocolException
    │   ├── NoSuchMethod             400  org.apache.hadoop.ipc.RpcNoSuchMethodException
    │   └── ProtocolMismatch         400  org.apache.hadoop.ipc.RPC$VersionMismatch
    ├── ServiceUnready               403  org.apache.hadoop.ipc.RetriableException     (try again)
    │   ├── SafeMode                 403  org.apache.hadoop.hdfs.server.namenode.SafeModeException
    │   ├── Overloaded               403  org.apache.hadoop.ipc.RetriableException
    │   ├── Standby                  403  org.apache.hadoop.ipc.StandbyException
    │   └── GrantLapsed              403  org.apache.hadoop.ipc.RetriableException
    ├── NoDatanodes                  403  java.io.IOException                          (try again)
    ├── ChunkUnavailable             403  org.apache.hadoop.hdfs.BlockMissingException (try again)
    ├── PeerError                    500                                               (try again elsewhere)
    │   ├── PeerUnreachable
    │   ├── PeerTimeout
    │   ├── PeerRefused
    │   │   ├── NodeIdTaken
    │   │   └── CredentialRefused
    │   └── ProtocolViolation
    │       └── BrokenSeal
    ├── ChunkError                   500
    │   ├── ChecksumMismatch
    │   ├── StaleVersion
    │   ├── ChunkNotFound
    │   ├── DiskFull
    │   └── DiskFault
    ├── CheckpointDamaged            (never on the wire: a file of a Spark checkpoint is damaged)
    │   ├── CheckpointAltered
    │   └── CheckpointTooNew
    ├── LogDamaged                   (never on the wire: a stream log is damaged)
    ├── CheckpointCancelled          (never on the wire: the caller cancelled its checkpoint)
    ├── StateError                   (never on the wire: paged state stays in one program's memory)
    │   ├── PagesExhausted
    │   ├── RecordRefused
    │   └── SchemaMismatch
    ├── StartupError                 (never on the wire: a service prints it and exits)
    └── QueryFailed                  (never on the wire: a streaming query stopped for good)
        └── OperatorFailed           (never on the wire: an operator of a dataflow raised an error)

A stock Hadoop client reads only `javaClassName` and `message`. It treats JSON without a RemoteException as success
even if the status is an error. Therefore every error that leaves a service over HTTP goes through
`remote_exception`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PeacefsError(Exception):
    """Base of all errors. `message` is one line that says what is wrong and, if possible, what to do."""

    http_status: ClassVar[int] = 500
    hadoop_class: ClassVar[str] = "java.io.IOException"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, culprit: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        #: The id of the datanode that caused the error, if known.
        self.culprit = culprit

    @property
    def code(self) -> str:
        return type(self).__name__


class PathError(PeacefsError):
    """Base of errors about one path of the namespace."""

    http_status = 403


class FileNotFound(PathError):
    """The path does not exist."""

    http_status = 404
    hadoop_class = "java.io.FileNotFoundException"


class FileAlreadyExists(PathError):
    """The path exists already."""

    hadoop_class = "org.apache.hadoop.fs.FileAlreadyExistsException"


class ParentNotDirectory(PathError):
    """A component before the last is a file."""

    hadoop_class = "org.apache.hadoop.fs.ParentNotDirectoryException"


class PathIsNotEmptyDirectory(PathError):
    """A directory that is not empty cannot be deleted without `recursive`."""

    hadoop_class = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"


class PathIsNotDirectory(PathError):
    """The path is a file, but a directory is required."""

    hadoop_class = "org.apache.hadoop.fs.PathIsNotDirectoryException"


class PathIsDirectory(PathError):
    """The path is a directory, but a file is required. HDFS raises FileNotFoundException: "Path is not a file"."""

    http_status = 404
    hadoop_class = "java.io.FileNotFoundException"


class FileChanged(PathError):
    """The file was replaced, changed or deleted after it was opened. It must be opened again."""


class PathLimitExceeded(PathError):
    """A path is too long or too deep."""


class NameTooLong(PathLimitExceeded):
    """A name is longer than `name_bytes_max`."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"


class DirectoryFull(PathLimitExceeded):
    """A directory already has `directory_entries_max` entries."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException"


class InvalidAcl(PathError):
    """An ACL contradicts itself, is too long, or does not apply to this kind of path."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.AclException"


class NoErasureCodingPolicy(PathError):
    """The path has no erasure coding policy that could be removed."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.NoECPolicySetException"


class SnapshotRefused(PathError):
    """A snapshot is not possible here, or an existing snapshot prevents the change."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.SnapshotException"


class SnapshotIsReadOnly(PathError):
    """Files in a snapshot cannot be changed."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException"


class QuotaExceeded(PeacefsError):
    """A change would exceed a quota of a directory."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.hdfs.protocol.QuotaExceededException"


class NamesQuotaExceeded(QuotaExceeded):
    """A change would exceed a directory's quota of names: files and directories."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"


class BytesQuotaExceeded(QuotaExceeded):
    """A change would exceed a directory's quota of bytes, which counts every replica."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"


class RenameRefused(PeacefsError):
    """A rename that HDFS refuses with any options: of the root, or of a directory into itself."""

    http_status = 403


class LeaseError(PeacefsError):
    """Base of errors about leases: the right to extend a file."""

    http_status = 403


class AlreadyBeingCreated(LeaseError):
    """Another writer is extending the file. The name is HDFS's; the file may have existed for long."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"


class LeaseExpired(LeaseError):
    """The writer's lease has ended: another writer has taken it, or the file was deleted."""

    hadoop_class = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"


class RunSuperseded(LeaseExpired):
    """The writing run of a query is no longer the latest of its checkpoint root, or the root was deleted."""


class AccessDenied(PeacefsError):
    """The secret is wrong, the token is invalid or has expired, or a permission is missing."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.security.AccessControlException"


class PathThroughFile(AccessDenied):
    """A component of the path before the last is a file.

    As in HDFS this is a kind of AccessDenied; operations that make a name raise ParentNotDirectory instead.
    """


class ImpersonationRefused(AccessDenied):
    """A service may not act for this user, or not from its host."""

    hadoop_class = "org.apache.hadoop.security.authorize.AuthorizationException"


class TokenExpired(AccessDenied):
    """A valid token has expired. Its bearer should ask the coordinator for a new one."""


class Unauthenticated(PeacefsError):
    """A required credential is missing, invalid, revoked or expired.

    Hadoop's client looks only at the status and raises an AccessControlException, "Unauthorized".
    """

    http_status = 401
    hadoop_class = "org.apache.hadoop.security.AccessControlException"


class BadRequest(PeacefsError):
    """A parameter, path or frame is malformed."""

    http_status = 400
    hadoop_class = "java.lang.IllegalArgumentException"


class InvalidTopology(BadRequest):
    """The description of a network contradicts itself; the message names the line and the mistake."""


class InvalidQuery(BadRequest):
    """A dataflow cannot run as it is written; the message says what to change."""


class IllegalChange(BadRequest):
    """HDFS's rules forbid the change, such as a truncation to more than the file's length."""

    hadoop_class = "org.apache.hadoop.HadoopIllegalArgumentException"


class Unsupported(PeacefsError):
    """The operation does not exist or is not implemented."""

    http_status = 400
    hadoop_class = "java.lang.UnsupportedOperationException"


class NoSuchProtocol(Unsupported):
    """A client of Hadoop's RPC asks for a protocol that is not served."""

    hadoop_class = "org.apache.hadoop.ipc.RpcNoSuchProtocolException"


class NoSuchMethod(Unsupported):
    """A protocol of Hadoop's RPC has no method of this name."""

    hadoop_class = "org.apache.hadoop.ipc.RpcNoSuchMethodException"


class ProtocolMismatch(Unsupported):
    """A client of Hadoop's RPC has another version of a protocol."""

    hadoop_class = "org.apache.hadoop.ipc.RPC$VersionMismatch"


class ServiceUnready(PeacefsError):
    """The request is valid, but the service cannot answer it now."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.ipc.RetriableException"
    retriable = True


class Standby(ServiceUnready):
    """This coordinator is a standby; the leader must be asked instead."""

    hadoop_class = "org.apache.hadoop.ipc.StandbyException"


class SafeMode(ServiceUnready):
    """The coordinator has just started and is waiting for its datanodes to report."""

    hadoop_class = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"


class Overloaded(ServiceUnready):
    """A queue is full."""


class GrantLapsed(ServiceUnready):
    """The writer did not begin the chunk before its grant lapsed. It may ask for another grant."""


class NoDatanodes(PeacefsError):
    """Fewer than `min_replication` live datanodes have space."""

    http_status = 403
    retriable = True


class ChunkUnavailable(PeacefsError):
    """No replica of a chunk could be read."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.hdfs.BlockMissingException"
    retriable = True


class PeerError(PeacefsError):
    """Another service failed; a different one may succeed."""

    retriable = True


class PeerUnreachable(PeerError):
    """A connection could not be made, or it broke."""


class PeerTimeout(PeerError):
    """A peer did not answer before the deadline."""


class PeerRefused(PeerError):
    """A peer refused the connection: wrong cluster, wrong secret or wrong protocol version."""

    retriable = False


class NodeIdTaken(PeerRefused):
    """Another connection has registered this datanode id. It may be an old one, not yet known to be broken."""

    retriable = True


class CredentialRefused(PeerRefused):
    """A datanode cannot prove that the id it claims is its own, or its credential was revoked."""


class ProtocolViolation(PeerError):
    """A peer sent bytes that are not a frame, or a frame that is not expected at this point."""


class BrokenSeal(ProtocolViolation):
    """Data between two services was altered or reordered by the network between them."""


class ChunkError(PeacefsError):
    """Base of errors about one replica of a chunk on one datanode."""


class ChecksumMismatch(ChunkError):
    """Data does not match the checksum that was sent or stored with it."""

    hadoop_class = "org.apache.hadoop.fs.ChecksumException"
    retriable = True


class StaleVersion(ChunkError):
    """The version of a replica or writer is older than one that the datanode has seen."""


class ChunkNotFound(ChunkError):
    """The datanode does not have the chunk."""


class DiskFull(ChunkError):
    """The datanode has no free space besides its reserve."""

    hadoop_class = "org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException"
    retriable = True


class DiskFault(ChunkError):
    """A disk failed to write, read or fsync."""

    retriable = True


class CheckpointDamaged(PeacefsError):
    """A file of a Spark checkpoint is damaged; the message says how, but does not name the file."""


class CheckpointAltered(CheckpointDamaged):
    """A readable file does not match its checksum file. Spark itself does not compare the two."""


class CheckpointTooNew(CheckpointDamaged):
    """The file has the format of a newer Spark version than this program supports."""


class LogDamaged(PeacefsError):
    """Records of a stream log were altered, or their row numbers do not follow those of the records before."""


class CheckpointCancelled(PeacefsError):
    """A checkpoint was cancelled before it was published. Nothing of it remains."""


class StateError(PeacefsError):
    """Base of errors of paged state: in its use, its memory or its schema."""


class PagesExhausted(StateError):
    """A page manager has reached its memory limit. The first `applied` records of the batch took effect."""

    def __init__(self, message: str, *, applied: int = 0, culprit: str | None = None) -> None:
        super().__init__(message, culprit=culprit)
        self.applied = applied


class RecordRefused(StateError):
    """A structure cannot store a record or column: it is too long, null, or of the wrong type."""


class SchemaMismatch(StateError):
    """A recovered structure has a different kind or schema than the program expects."""


class StartupError(PeacefsError):
    """A service or command cannot start. It prints the message as one line and exits with status 1."""


class QueryFailed(PeacefsError):
    """A streaming query stops repeatedly, or makes no progress."""


class OperatorFailed(QueryFailed):
    """An operator of a dataflow raised an error; the message names the operator and its input rows."""


def _tree(root: type[PeacefsError]) -> dict[str, type[PeacefsError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


#: Every error class by its name, which is also its code on the wire.
BY_CODE: dict[str, type[PeacefsError]] = _tree(PeacefsError)

_BY_HADOOP_CLASS: dict[str, type[PeacefsError]] = {}
for _kind in BY_CODE.values():
    _BY_HADOOP_CLASS.setdefault(_kind.hadoop_class, _kind)


def from_wire(code: str, message: str, culprit: str | None = None) -> PeacefsError:
    """Return the error that a peer sent; an unknown code becomes a PeacefsError."""
    return BY_CODE.get(code, PeacefsError)(message, culprit=culprit)


def remote_exception(error: PeacefsError, request: str = "") -> dict[str, Any]:
    """Return the WebHDFS error body: `{"RemoteException": {exception, javaClassName, message}}`.

    `peacefsCode` and `requestId` (the request's id in logs) are our additions; stock clients ignore them.
    """
    return {
        "RemoteException": {
            "exception": error.hadoop_class.rsplit(".", 1)[-1].rsplit("$", 1)[-1],
            "javaClassName": error.hadoop_class,
            "message": error.message,
            "peacefsCode": error.code,
            **({"requestId": request} if request else {}),
        }
    }


def from_remote_exception(body: dict[str, Any]) -> PeacefsError:
    """Return the error that a WebHDFS error body describes; bodies of other WebHDFS servers work, too."""
    remote = body.get("RemoteException", {})
    message = str(remote.get("message", "the server gave no message"))
    code = remote.get("peacefsCode")
    if isinstance(code, str) and code in BY_CODE:
        return BY_CODE[code](message)
    return _BY_HADOOP_CLASS.get(str(remote.get("javaClassName")), PeacefsError)(message)
