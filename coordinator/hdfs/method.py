"""What the methods of all protocols share: their entry in the table, and the call that they receive."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.message import Message

from peacefs.coordinator.authentication.delegation import DelegationTokens
from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.messages import NameCall

from .block_messages import BlockMessages

#: HDFS's path prefix for a file that is named by its id.
_BY_INODE: Final = "/.reserved/.inodes/"
_INODE_DIGITS_MAX: Final = 19
_INODE_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Served:
    """The services that methods use. The same for all calls to a coordinator."""

    files: Files
    cluster: Cluster
    blocks: BlockMessages
    cluster_id: str
    leadership: Leadership
    #: Returns whether the coordinator still waits for its datanodes.
    is_in_safe_mode: Callable[[], bool]
    #: Converts a monotonic time to milliseconds of the wall clock.
    now_ms: Callable[[float], int]
    #: None without authentication: any user name is accepted.
    delegation: DelegationTokens | None = None


@dataclass(slots=True)
class MethodCall:
    """One call, as passed to its method."""

    served: Served
    #: The user for whom the method is carried out.
    user: str
    host: str | None
    #: The client id and the call id.
    client: bytes
    number: int
    #: The authenticated caller; None without authentication.
    caller: Caller | None = None
    #: The address under which the client reaches the service.
    service: str = ""
    #: The message for the audit log; a method may replace the client's.
    asked: NameCall | None = field(default=None)

    @property
    def request_id(self) -> str:
        """The call's key in the retry cache. A retry has the same key."""
        return f"{self.client.hex()}-{self.number}" if self.client else ""

    @property
    def files(self) -> Files:
        return self.served.files

    def path(self, text: str) -> str:
        """Resolve a client's path, which may name a file by id as HDFS's path handles do.

        Raises FileNotFound if no file has that id.
        """
        if not text.startswith(_BY_INODE):
            return text
        number, slash, below = text.removeprefix(_BY_INODE).partition("/")
        if not number.isascii() or not number.isdigit() or len(number) > _INODE_DIGITS_MAX:
            raise FileNotFound(f"File does not exist: {text}")
        return self.files.names.path_of(min(int(number), _INODE_MAX)) + slash + below

    def name(self, asked: NameCall) -> Coroutine[Any, Any, Any]:
        """Return the coroutine that carries out a namespace operation and returns its result."""
        self.asked = asked
        return NAME_TABLE[type(asked)].run(self.served.files, asked, self.host)


class Run(Protocol):
    def __call__(self, call: MethodCall, asked: Any, /) -> Coroutine[Any, Any, Message | bytes]: ...


class Method(NamedTuple):
    """How a method is served. The method's name is its key in the table."""

    request: type[Message]
    run: Run
    is_read: bool = False
    #: True if standbys answer this method, too.
    is_of_any: bool = False
    #: Extracts the path from a request, for the audit log.
    path: Callable[[Any], str | None] = lambda asked: getattr(asked, "src", None)
    #: True if calls are not audited, because clients repeat them all the time.
    is_silent: bool = False
