"""What the methods of a protocol have in common: the row of the table, and the call that they are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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

#: HDFS's name for a file by its id.
_BY_INODE: Final = "/.reserved/.inodes/"
_INODE_DIGITS_MAX: Final = 19
_INODE_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Served:
    """What the methods answer from. The same for all calls of a coordinator."""

    files: Files
    cluster: Cluster
    blocks: BlockMessages
    cluster_id: str
    leadership: Leadership
    #: Returns whether the coordinator still waits for its datanodes.
    is_in_safe_mode: Callable[[], bool]
    #: Returns the time of the wall clock, in milliseconds, that belongs to a time of the monotonic clock.
    now_ms: Callable[[float], int]
    #: None if user names are believed without tokens.
    delegation: DelegationTokens | None = None


@dataclass(slots=True)
class MethodCall:
    """One call, as its method sees it."""

    served: Served
    #: On whose behalf the method is carried out.
    user: str
    host: str | None
    #: The client's id and the call's.
    client: bytes
    number: int
    #: Who was authenticated; None if names are believed.
    caller: Caller | None = None
    #: The service's address, as the client names it.
    service: str = ""
    #: The message that was carried out, for the audit log.
    asked: NameCall | None = field(default=None)

    @property
    def request_id(self) -> str:
        """The call's id for the retry cache: the same when a client asks again."""
        return f"{self.client.hex()}-{self.number}" if self.client else ""

    @property
    def files(self) -> Files:
        return self.served.files

    def path(self, text: str) -> str:
        """Return a path that a client may read. It may name a file by its id, as HDFS's path handles do.

        Raises FileNotFound if no file has that id.
        """
        if not text.startswith(_BY_INODE):
            return text
        number, slash, below = text.removeprefix(_BY_INODE).partition("/")
        if not number.isascii() or not number.isdigit() or len(number) > _INODE_DIGITS_MAX:
            raise FileNotFound(f"File does not exist: {text}")
        return self.files.names.path_of(min(int(number), _INODE_MAX)) + slash + below

    async def name(self, asked: NameCall) -> Any:
        """Carry out an operation of the table of names, and return its result."""
        self.asked = asked
        return await NAME_TABLE[type(asked)].run(self.served.files, asked, self.host)


class Run(Protocol):
    def __call__(self, call: MethodCall, asked: Any, /) -> Awaitable[Message]: ...


class Method(NamedTuple):
    """How a method is served. Its name is the key in its table."""

    request: type[Message]
    run: Run
    is_read: bool = False
    #: True if a standby answers, too.
    is_of_any: bool = False
    #: Returns the path in the request, for the audit log.
    path: Callable[[Any], str | None] = lambda asked: getattr(asked, "src", None)
    #: True if calls are not recorded: clients repeat them all the time.
    is_silent: bool = False
