"""Effects: the operations that a participant can request from its driver.

A participant (a pipeline hop, the chunk store's commit, a writer, a reader) is a generator. It yields effects and
is resumed with their results, or with an exception if they fail. It does no I/O itself and reads no clock.
`thread_driver.ThreadDriver` performs effects with system calls, one thread per participant. `reactor.Reactor` runs
many participants on one thread. The simulated cluster of the tests performs the same effects under a seed and can
crash a node at any of them.

Use the functions below with `yield from`. They document each effect, and have the types that a bare `yield` would
lose:

    frame = yield from receive(connection, timeout_s=5.0)

Network effects and `call` raise classes of `errors` (`PeerUnreachable`, `PeerTimeout`, ...); disk effects raise
`OSError`. With threads, participants run concurrently, so shared state needs an ordinary lock. A lock must never
be held across a yield.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ProtocolViolation, from_wire
from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import control_call_timeout_s
from peacefs.protocol.messages import Failure, Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Address = tuple[str, int]
#: A part of a file: path, offset and length.
Part = tuple[str, int, int]


class Effect:
    """Base of all effects. Drivers dispatch on the exact class."""

    __slots__ = ()


#: A participant, or a part of one: yields effects and returns a T.
Steps = Generator[Effect, Any, T]


class Connection:
    """A framed connection after its handshake. Opaque to participants; each driver has its own subclass."""

    #: Name of the peer, for error messages.
    peer: str
    #: The peer's local socket, over which it can share open files with processes of its host; None if unavailable.
    local_address: Address | None = None


class File:
    """An open file. Opaque to participants."""


# -- network ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Connect(Effect):
    address: Address
    name: str


@dataclass(slots=True)
class Send(Effect):
    connection: Connection
    message: Message
    payload: Bytes
    timeout_s: float


@dataclass(slots=True)
class SendFile(Effect):
    connection: Connection
    message: Message
    file: File
    offset: int
    length: int
    timeout_s: float


@dataclass(slots=True)
class SendDescriptor(Effect):
    connection: Connection
    message: Message
    file: File
    timeout_s: float


@dataclass(slots=True)
class ReceiveDescriptor(Effect):
    connection: Connection
    timeout_s: float


@dataclass(slots=True)
class Receive(Effect):
    connection: Connection
    timeout_s: float
    into: memoryview | None
    payload_max: int | None = None
    #: True if the connection is idle until this frame arrives.
    begins_request: bool = False


@dataclass(slots=True)
class ReceiveFrames(Receive):
    #: Returns False for a frame that must be the last one returned.
    more_after: Callable[[Frame], bool] = lambda frame: True


@dataclass(slots=True)
class SendFrames(Effect):
    connection: Connection
    frames: Sequence[Frame]
    timeout_s: float


@dataclass(slots=True)
class ReceiveMore(Effect):
    connection: Connection
    count: int
    timeout_s: float
    into: memoryview | None


@dataclass(slots=True)
class Release(Effect):
    connection: Connection


@dataclass(slots=True)
class Close(Effect):
    connection: Connection


@dataclass(slots=True)
class Call(Effect):
    message: Message
    timeout_s: float


# -- disk ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class OpenLocalFile(Effect):
    path: str
    create: bool
    #: True if the file is only appended to, synced once, and closed.
    written_once: bool = False


@dataclass(slots=True)
class AppendToFile(Effect):
    file: File
    buffers: Sequence[Bytes]


@dataclass(slots=True)
class ReadPart(Effect):
    path: str
    offset: int
    length: int


@dataclass(slots=True)
class ReadFromMemory(Effect):
    parts: Sequence[Part]


@dataclass(slots=True)
class ReadAt(Effect):
    file: File
    offset: int
    length: int


@dataclass(slots=True)
class ReadInto(Effect):
    file: File
    offset: int
    target: memoryview
    timeout_s: float


@dataclass(slots=True)
class ReadAhead(Effect):
    file: File
    offset: int
    length: int


@dataclass(slots=True)
class StartWriteback(Effect):
    file: File


@dataclass(slots=True)
class Sync(Effect):
    file: File


@dataclass(slots=True)
class DropCached(Effect):
    file: File


@dataclass(slots=True)
class TruncateFile(Effect):
    file: File
    length: int


@dataclass(slots=True)
class CloseFile(Effect):
    file: File


@dataclass(slots=True)
class RenameFile(Effect):
    source: str
    target: str


@dataclass(slots=True)
class SyncDirectory(Effect):
    path: str


@dataclass(slots=True)
class Remove(Effect):
    path: str


@dataclass(slots=True)
class MakeDirectory(Effect):
    path: str


@dataclass(slots=True)
class ListDirectory(Effect):
    path: str


# -- time and each other ---------------------------------------------------------------------------


@dataclass(slots=True)
class Now(Effect):
    """Monotonic seconds."""


@dataclass(slots=True)
class WallClock(Effect):
    """Seconds since 1970, for display and for comparisons between machines."""


@dataclass(slots=True)
class Sleep(Effect):
    seconds: float


@dataclass(slots=True)
class Spawn(Effect):
    steps: Generator[Effect, Any, None]


@dataclass(slots=True)
class Ticket:
    """A one-time event that one participant waits for and another one fires."""

    fired: bool = False
    _wakers: list[Callable[[], None]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def fire(self) -> None:
        """Wake all waiters. Firing again is harmless, and completes a first call that Ctrl-C has interrupted."""
        if self.fired and not self._wakers:
            return
        with self._lock:
            self.fired = True
            wakers = list(self._wakers)
        for wake in wakers:
            wake()
        self._wakers.clear()

    def when_fired(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the ticket fires, or now if it has. For drivers; may rarely call it twice."""
        with self._lock:
            if not self.fired:
                self._wakers.append(wake)
                return
        wake()


@dataclass(slots=True)
class Wait(Effect):
    ticket: Ticket
    timeout_s: float


# -- the same, typed, for `yield from` -------------------------------------------------------------


def connect(address: Address, name: str) -> Steps[Connection]:
    """Return a connection to a datanode's data server, from the pool or new."""
    return (yield Connect(address, name))  # type: ignore[no-any-return]


def send(connection: Connection, message: Message, payload: Bytes = b"", *, timeout_s: float) -> Steps[None]:
    """Send a frame. Raises PeerTimeout if the peer receives too slowly, PeerUnreachable if the connection
    broke.
    """
    yield Send(connection, message, payload, timeout_s)


def send_file(
    connection: Connection, message: Message, file: File, offset: int, length: int, *, timeout_s: float
) -> Steps[None]:
    """Send a frame whose payload is part of a file, without reading or verifying it.

    Raises OSError if the disk fails. Part of the frame may have been sent, so the connection must then be closed.
    """
    yield SendFile(connection, message, file, offset, length, timeout_s)


def send_descriptor(connection: Connection, message: Message, file: File, *, timeout_s: float) -> Steps[None]:
    """Send a frame over a local socket together with the open file, read-only. The file stays open here, too.

    Raises OSError if the file cannot be reopened, BadRequest over other connections. Nothing was sent then.
    """
    yield SendDescriptor(connection, message, file, timeout_s)


def receive_descriptor(connection: Connection, *, timeout_s: float) -> Steps[tuple[Message, File | None]]:
    """Receive a message over a local socket and the file sent with it, if any, which the caller must close."""
    return (yield ReceiveDescriptor(connection, timeout_s))  # type: ignore[no-any-return]


def receive(
    connection: Connection, *, timeout_s: float, into: memoryview | None = None, payload_max: int | None = None
) -> Steps[Frame]:
    """Receive a frame; its payload is valid until the next `receive` on this connection.

    A payload that fits into `into` may be stored at its start; then `payload.obj is into.obj`. Of a longer payload
    than `payload_max`, only that part is received. `Frame.unread` is the size of the rest, which must be received
    with `receive_more` before anything else.
    """
    return (yield Receive(connection, timeout_s, into, payload_max))  # type: ignore[no-any-return]


def receive_more(
    connection: Connection, count: int, *, timeout_s: float, into: memoryview | None = None
) -> Steps[Bytes]:
    """Receive the next `count` bytes of a payload that `receive` has begun. Validity and `into` are as there."""
    return (yield ReceiveMore(connection, count, timeout_s, into))  # type: ignore[no-any-return]


def next_request(connection: Connection, *, timeout_s: float) -> Steps[Frame]:
    """Receive the first frame of the next request, which may not arrive for a long time."""
    return (yield Receive(connection, timeout_s, None, begins_request=True))  # type: ignore[no-any-return]


def next_requests(
    connection: Connection, *, timeout_s: float, more_after: Callable[[Frame], bool]
) -> Steps[list[Frame]]:
    """Receive the next request, and all further requests that have arrived completely.

    The next request may not arrive for a long time. Stop after a request for which `more_after` is False. Payloads
    are valid until the next receive.
    """
    return (  # type: ignore[no-any-return]
        yield ReceiveFrames(connection, timeout_s, None, None, begins_request=True, more_after=more_after)
    )


def receive_frames(connection: Connection, *, timeout_s: float) -> Steps[list[Frame]]:
    """Receive a frame, and all further complete ones. Payloads are valid until the next receive."""
    return (yield ReceiveFrames(connection, timeout_s, None))  # type: ignore[no-any-return]


def send_frames(connection: Connection, frames: Sequence[Frame], *, timeout_s: float) -> Steps[None]:
    """Send several small frames at once. Raises the errors of `send`, possibly after some frames were sent.

    Another participant may receive on the same connection meanwhile, but not send.
    """
    yield SendFrames(connection, frames, timeout_s)


def release(connection: Connection) -> Steps[None]:
    """Return a connection to the pool. Allowed only between requests."""
    yield Release(connection)


def close(connection: Connection) -> Steps[None]:
    """Close a connection, aborting any request on it."""
    yield Close(connection)


def call(message: Message, answer: type[M], *, timeout_s: float = control_call_timeout_s) -> Steps[M]:
    """Send a message to the coordinator and return its answer. Raises the error that a Failure names."""
    reply = yield Call(message, timeout_s)
    if isinstance(reply, Failure):
        raise from_wire(reply.code, reply.message, reply.culprit)
    if not isinstance(reply, answer):
        raise ProtocolViolation(f"{answer.__name__} expected, {type(reply).__name__} received")
    return reply


def open_file(path: str, *, create: bool = False, written_once: bool = False) -> Steps[File]:
    """Open a file for reading and appending; with `create`, create it or truncate an existing one.

    With `written_once`, the caller will only append, sync once and close, but not read.
    """
    return (yield OpenLocalFile(path, create, written_once))  # type: ignore[no-any-return]


def append(file: File, *buffers: Bytes) -> Steps[None]:
    yield AppendToFile(file, buffers)


def read_part(path: str, offset: int, length: int) -> Steps[bytes]:
    """Read up to `length` bytes of a file by path; fewer only at its end.

    The driver may keep the file open for the next reader, for a while even after it was deleted.
    """
    return (yield ReadPart(path, offset, length))  # type: ignore[no-any-return]


def read_from_memory(parts: Sequence[Part]) -> Steps[list[bytes | None]]:
    """Read parts of open files without waiting. Return None for each part that is not in memory."""
    return (yield ReadFromMemory(parts))  # type: ignore[no-any-return]


def read_at(file: File, offset: int, length: int) -> Steps[bytes]:
    """Read up to `length` bytes; fewer only at the end of the file."""
    return (yield ReadAt(file, offset, length))  # type: ignore[no-any-return]


def read_into(file: File, offset: int, target: memoryview, *, timeout_s: float) -> Steps[int]:
    """Read into `target` up to the end of the file; return the number of bytes.

    Raises PeerTimeout if the disk is too slow, so that the caller can read from another datanode.
    """
    return (yield ReadInto(file, offset, target, timeout_s))  # type: ignore[no-any-return]


def read_ahead(file: File, offset: int, length: int) -> Steps[None]:
    """Start reading into the page cache without waiting, to speed up a later `read_at`."""
    yield ReadAhead(file, offset, length)


def start_writeback(file: File) -> Steps[None]:
    """Start writing appended data to disk without waiting, so that a later sync is short."""
    yield StartWriteback(file)


def sync(file: File) -> Steps[None]:
    """Make appended data durable, with fsync. If it fails, nothing in the file can be trusted."""
    yield Sync(file)


def drop_cached(file: File) -> Steps[None]:
    """Drop the file from the page cache, so that the next read comes from the disk. Unsynced data stays cached."""
    yield DropCached(file)


def truncate(file: File, length: int) -> Steps[None]:
    """Truncate the file to `length` bytes; the next append goes there."""
    yield TruncateFile(file, length)


def close_file(file: File) -> Steps[None]:
    """Close a file. This does not sync it."""
    yield CloseFile(file)


def rename(source: str, target: str) -> Steps[None]:
    """Rename a file, atomically replacing `target`. Durable after `sync_directory`."""
    yield RenameFile(source, target)


def sync_directory(path: str) -> Steps[None]:
    """Make the names in a directory durable."""
    yield SyncDirectory(path)


def remove(path: str) -> Steps[None]:
    """Remove a file. Succeeds if it does not exist."""
    yield Remove(path)


def make_directory(path: str) -> Steps[None]:
    """Make a directory and its parents. Succeeds if it exists."""
    yield MakeDirectory(path)


def list_directory(path: str) -> Steps[list[tuple[str, int]]]:
    """Return the sorted names and sizes of the files in a directory; subdirectories have size -1."""
    return (yield ListDirectory(path))  # type: ignore[no-any-return]


def now() -> Steps[float]:
    """Return monotonic seconds, for deadlines and durations."""
    return (yield Now())  # type: ignore[no-any-return]


def wall_clock() -> Steps[float]:
    """Return seconds since 1970, for display and for comparisons between machines, such as expiry times."""
    return (yield WallClock())  # type: ignore[no-any-return]


def sleep(seconds: float) -> Steps[None]:
    yield Sleep(seconds)


def spawn(steps: Steps[None]) -> Steps[None]:
    """Start another participant, which runs after all that are ready. It must not raise."""
    yield Spawn(steps)


def wait(ticket: Ticket, *, timeout_s: float) -> Steps[bool]:
    """Wait until the ticket fires (True) or the time is over (False)."""
    return (yield Wait(ticket, timeout_s))  # type: ignore[no-any-return]
