"""One error tree. Each class bears its HTTP status, its Hadoop exception and whether to try again.

    PeacefsError                     500  java.io.IOException
    ├── PathError
    │   ├── FileNotFound             404  java.io.FileNotFoundException
    │   ├── FileAlreadyExists        403  org.apache.hadoop.fs.FileAlreadyExistsException
    │   ├── ParentNotDirectory       403  org.apache.hadoop.fs.ParentNotDirectoryException
    │   ├── PathIsNotEmptyDirectory  403  org.apache.hadoop.fs.PathIsNotEmptyDirectoryException
    │   ├── PathIsDirectory          404  java.io.FileNotFoundException is HDFS's word for it: see the class
    │   ├── FileChanged              403  java.io.IOException
    │   ├── PathLimitExceeded        403  java.io.IOException is HDFS's word for it
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
    │       └── RunSuperseded        403  the same: HDFS's word for a writer that was fenced off
    ├── Unauthenticated              401  org.apache.hadoop.security.AccessControlException
    ├── AccessDenied                 403  org.apache.hadoop.security.AccessControlException
    │   ├── ImpersonationRefused     403  org.apache.hadoop.security.authorize.AuthorizationException
    │   └── TokenExpired             403  the same: what was allowed is to be asked for again
    ├── BadRequest                   400  java.lang.IllegalArgumentException
    │   ├── InvalidTopology          400  java.lang.IllegalArgumentException
    │   ├── InvalidQuery             400  java.lang.IllegalArgumentException
    │   └── IllegalChange            400  org.apache.hadoop.HadoopIllegalArgumentException
    ├── Unsupported                  400  java.lang.UnsupportedOperationException
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
    ├── CheckpointDamaged            (never on the wire: what a file of a Spark checkpoint should not be)
    │   ├── CheckpointAltered
    │   └── CheckpointTooNew
    ├── LogDamaged                   (the same of a stream log)
    ├── CheckpointCancelled          (never on the wire: who submitted a checkpoint gave it up)
    ├── StateError                   (never on the wire: paged state is kept in the memory of one program)
    │   ├── PagesExhausted
    │   ├── RecordRefused
    │   └── SchemaMismatch
    ├── StartupError                 (never on the wire: a service says it and exits)
    └── QueryFailed                  (never on the wire: a streaming query stopped for good)
        └── OperatorFailed           (the same: an operator of a dataflow raised an error)

A stock Hadoop client looks at `javaClassName` and `message` alone, and takes an unexpected status whose
JSON names no RemoteException for success: so every error that leaves a service over HTTP goes through
`remote_exception`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PeacefsError(Exception):
    """The root. `message` is one line that says what is wrong and, where it helps, what to do."""

    http_status: ClassVar[int] = 500
    hadoop_class: ClassVar[str] = "java.io.IOException"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, culprit: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        #: Id of the datanode that the fault is ascribed to, where one is.
        self.culprit = culprit

    @property
    def code(self) -> str:
        return type(self).__name__


class PathError(PeacefsError):
    """Something about a path of the namespace."""

    http_status = 403


class FileNotFound(PathError):
    """The path names nothing."""

    http_status = 404
    hadoop_class = "java.io.FileNotFoundException"


class FileAlreadyExists(PathError):
    """The path is taken."""

    hadoop_class = "org.apache.hadoop.fs.FileAlreadyExistsException"


class ParentNotDirectory(PathError):
    """A component before the last is a file."""

    hadoop_class = "org.apache.hadoop.fs.ParentNotDirectoryException"


class PathIsNotEmptyDirectory(PathError):
    """A directory with children, to be deleted without `recursive`."""

    hadoop_class = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"


class PathIsDirectory(PathError):
    """A directory where a file is wanted. HDFS answers a FileNotFoundException: "Path is not a file"."""

    http_status = 404
    hadoop_class = "java.io.FileNotFoundException"


class FileChanged(PathError):
    """The opened file is no longer there: it was replaced or changed since, and must be opened again."""


class PathLimitExceeded(PathError):
    """A path longer or deeper than the limits."""


class NameTooLong(PathLimitExceeded):
    """A name longer than `name_bytes_max`."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"


class DirectoryFull(PathLimitExceeded):
    """A directory with as many entries as `directory_entries_max`."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException"


class InvalidAcl(PathError):
    """An ACL that contradicts itself, is too long, or is not for such a path."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.AclException"


class NoErasureCodingPolicy(PathError):
    """An erasure coding policy is to be taken from what has none."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.NoECPolicySetException"


class SnapshotRefused(PathError):
    """A snapshot that cannot be, or one that stands in the way."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.SnapshotException"


class SnapshotIsReadOnly(PathError):
    """A change of what a snapshot shows."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException"


class QuotaExceeded(PeacefsError):
    """More than a directory may hold."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.hdfs.protocol.QuotaExceededException"


class NamesQuotaExceeded(QuotaExceeded):
    """More files and directories than there may be."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"


class BytesQuotaExceeded(QuotaExceeded):
    """More bytes, counted with every replica, than there may be."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"


class RenameRefused(PeacefsError):
    """A rename that HDFS refuses whatever its options: the root, or a directory into itself."""

    http_status = 403


class LeaseError(PeacefsError):
    """Something about who may extend a file."""

    http_status = 403


class AlreadyBeingCreated(LeaseError):
    """Somebody else extends the file just now. HDFS's word, although the file may be old."""

    hadoop_class = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"


class LeaseExpired(LeaseError):
    """The lease of whoever wants to go on is no more: somebody else has taken it, or the file is gone."""

    hadoop_class = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"


class RunSuperseded(LeaseExpired):
    """A write of a run of a query that is not the latest of its checkpoint root, or whose root is gone."""


class AccessDenied(PeacefsError):
    """A wrong secret, a token that does not verify or has expired, or a permission that is not there."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.security.AccessControlException"


class ImpersonationRefused(AccessDenied):
    """A service that wants to act for a user and is not configured to, or not from where it is."""

    hadoop_class = "org.apache.hadoop.security.authorize.AuthorizationException"


class TokenExpired(AccessDenied):
    """A token that was good once. Its bearer asks the coordinator for another."""


class Unauthenticated(PeacefsError):
    """No credential where one is wanted, or one that does not verify, was revoked or has expired.

    Hadoop's client makes an AccessControlException of the status alone, "Unauthorized".
    """

    http_status = 401
    hadoop_class = "org.apache.hadoop.security.AccessControlException"


class BadRequest(PeacefsError):
    """A parameter, path or frame that is malformed."""

    http_status = 400
    hadoop_class = "java.lang.IllegalArgumentException"


class InvalidTopology(BadRequest):
    """A description of a network that contradicts itself: the message names the line and the mistake."""


class InvalidQuery(BadRequest):
    """A dataflow that cannot run as it is written; the message says what to change."""


class IllegalChange(BadRequest):
    """A change that HDFS's rules forbid, such as a truncation to more than there is."""

    hadoop_class = "org.apache.hadoop.HadoopIllegalArgumentException"


class Unsupported(PeacefsError):
    """An operation that does not exist or is not there yet."""

    http_status = 400
    hadoop_class = "java.lang.UnsupportedOperationException"


class ServiceUnready(PeacefsError):
    """Nothing is wrong with the request; the service cannot answer it now."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.ipc.RetriableException"
    retriable = True


class Standby(ServiceUnready):
    """This coordinator stands by while another one leads: ask that one."""

    hadoop_class = "org.apache.hadoop.ipc.StandbyException"


class SafeMode(ServiceUnready):
    """The coordinator has just started and still waits for its datanodes."""

    hadoop_class = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"


class Overloaded(ServiceUnready):
    """A queue is full."""


class GrantLapsed(ServiceUnready):
    """A chunk was not begun while its grant was good; there may be another for whoever asks again."""


class NoDatanodes(PeacefsError):
    """Fewer live datanodes with room than `min_replication`."""

    http_status = 403
    retriable = True


class ChunkUnavailable(PeacefsError):
    """No replica of a chunk could be read."""

    http_status = 403
    hadoop_class = "org.apache.hadoop.hdfs.BlockMissingException"
    retriable = True


class PeerError(PeacefsError):
    """Another service failed us: try another."""

    retriable = True


class PeerUnreachable(PeerError):
    """No connection, or one that broke."""


class PeerTimeout(PeerError):
    """A peer that said nothing until the deadline."""


class PeerRefused(PeerError):
    """A peer that answered, and said no: wrong cluster, wrong secret, wrong protocol version."""

    retriable = False


class NodeIdTaken(PeerRefused):
    """Another process speaks for the datanode of this id; it may be a link that has not been found broken yet."""

    retriable = True


class CredentialRefused(PeerRefused):
    """A datanode does not prove that it is the one to which its id belongs, or it was revoked."""


class ProtocolViolation(PeerError):
    """Bytes that are no frame, or a frame that has no place here."""


class BrokenSeal(ProtocolViolation):
    """Data between two services arrived altered or out of place: the network between them is at fault."""


class ChunkError(PeacefsError):
    """Something about one replica of a chunk on one datanode."""


class ChecksumMismatch(ChunkError):
    """Bytes that do not match the checksum that travelled or was stored with them."""

    hadoop_class = "org.apache.hadoop.fs.ChecksumException"
    retriable = True


class StaleVersion(ChunkError):
    """A replica or a writer whose version is older than what the datanode has seen."""


class ChunkNotFound(ChunkError):
    """The datanode holds no such chunk."""


class DiskFull(ChunkError):
    """The datanode has no room beyond what it keeps in reserve."""

    hadoop_class = "org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException"
    retriable = True


class DiskFault(ChunkError):
    """A disk that failed to write, to read or to fsync."""

    retriable = True


class CheckpointDamaged(PeacefsError):
    """A file of a Spark checkpoint that is not what it should be; the message says how, without its name."""


class CheckpointAltered(CheckpointDamaged):
    """A file that can be read, and is not what its checksum file says: Spark does not compare the two."""


class CheckpointTooNew(CheckpointDamaged):
    """A file in a format of a Spark that this program does not know."""


class LogDamaged(PeacefsError):
    """Records of a stream log that are not what was written, or rows that do not follow those that are there."""


class CheckpointCancelled(PeacefsError):
    """A checkpoint was given up before it was published; nothing of it is there."""


class StateError(PeacefsError):
    """A fault of paged state: of its use, its memory or its schema."""


class PagesExhausted(StateError):
    """The bound on the memory of a page manager is reached. `applied` records of the batch took effect."""

    def __init__(self, message: str, *, applied: int = 0, culprit: str | None = None) -> None:
        super().__init__(message, culprit=culprit)
        self.applied = applied


class RecordRefused(StateError):
    """A record or column that a structure cannot hold: too long, null, or of another type."""


class SchemaMismatch(StateError):
    """A structure was recovered whose kind or schema is not the one that was asked for."""


class StartupError(PeacefsError):
    """Why a service or command cannot start: shown as one line, exit status 1."""


class QueryFailed(PeacefsError):
    """A streaming query that stops again and again, or does nothing any more."""


class OperatorFailed(QueryFailed):
    """An operator of a dataflow raised an error; the message names it and the rows that it was given."""


def _tree(root: type[PeacefsError]) -> dict[str, type[PeacefsError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


#: Every class of the tree by its name, which is also its code on the wire.
BY_CODE: dict[str, type[PeacefsError]] = _tree(PeacefsError)

_BY_HADOOP_CLASS: dict[str, type[PeacefsError]] = {}
for _kind in BY_CODE.values():
    _BY_HADOOP_CLASS.setdefault(_kind.hadoop_class, _kind)


def from_wire(code: str, message: str, culprit: str | None = None) -> PeacefsError:
    """The error that a peer sent by its code; an unknown code becomes the root."""
    return BY_CODE.get(code, PeacefsError)(message, culprit=culprit)


def remote_exception(error: PeacefsError, request: str = "") -> dict[str, Any]:
    """The WebHDFS error body: `{"RemoteException": {exception, javaClassName, message}}`.

    `peacefsCode`, and `requestId`, by which logs name the request, are additions of ours that stock clients pass
    over.
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
    """The inverse of `remote_exception`; also reads what other WebHDFS servers send."""
    remote = body.get("RemoteException", {})
    message = str(remote.get("message", "the server gave no message"))
    code = remote.get("peacefsCode")
    if isinstance(code, str) and code in BY_CODE:
        return BY_CODE[code](message)
    return _BY_HADOOP_CLASS.get(str(remote.get("javaClassName")), PeacefsError)(message)
