"""The vocabulary in which a participant says what it wants done.

A participant (a pipeline hop, the chunk store's commit, a writer, a reader) is a generator: it yields effects
and is resumed with their results, or with the fault thrown into it. It touches no socket, file or clock of its
own. `threads.ThreadDriver` performs effects with system calls, one thread a participant; the simulated cluster
of the tests performs the same ones under a seed and can crash a node at any of them.

Use the small functions below with `yield from`; they say what each effect does, and carry the types that a bare
`yield` would lose:

    frame = yield from receive(connection, timeout_s=5.0)

Faults: network effects and `call` raise classes of `errors` (`PeerUnreachable`, `PeerTimeout`, ...); disk
effects raise `OSError`. Between two effects a participant runs alone in the simulation but beside others on
threads: shared state is guarded by an ordinary lock that is never held across a yield.
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


class Effect:
    """Base of all. Drivers dispatch on the exact class."""

    __slots__ = ()


#: A participant in the making: yields effects, returns a T.
Steps = Generator[Effect, Any, T]


class Connection:
    """A framed connection whose hello is done. Opaque to participants; each driver has its own kind."""

    #: Name of the peer, for messages and blame.
    peer: str
    #: The address of the local socket for processes of its host, over which open files can be shared; None for
    #: none.
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
    #: Until it comes, nothing is under way on the connection.
    begins_request: bool = False


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
    #: It is appended to, synced once, and closed.
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
    """Seconds since 1970, for what is shown or compared between machines."""


@dataclass(slots=True)
class Sleep(Effect):
    seconds: float


@dataclass(slots=True)
class Ticket:
    """Something that one participant waits for and another brings about, once."""

    fired: bool = False
    _wakers: list[Callable[[], None]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def fire(self) -> None:
        """Once more is harmless, and does what was left undone where Ctrl-C has interrupted who fired it first."""
        if self.fired and not self._wakers:
            return
        with self._lock:
            self.fired = True
            wakers = list(self._wakers)
        for wake in wakers:
            wake()
        self._wakers.clear()

    def when_fired(self, wake: Callable[[], None]) -> None:
        """For drivers: calls `wake` once the ticket has fired, at once if it has; seldom, a second time."""
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
    """A connection to a datanode's data server, kept from earlier use or new."""
    return (yield Connect(address, name))  # type: ignore[no-any-return]


def send(connection: Connection, message: Message, payload: Bytes = b"", *, timeout_s: float) -> Steps[None]:
    """Sends a frame. Raises PeerTimeout when the peer takes it too slowly, PeerUnreachable when it is gone."""
    yield Send(connection, message, payload, timeout_s)


def send_file(
    connection: Connection, message: Message, file: File, offset: int, length: int, *, timeout_s: float
) -> Steps[None]:
    """Sends a frame whose payload is part of a file, which is not looked at on its way.

    Raises OSError for a fault of the disk: the frame may have been begun, and the connection is only to be closed.
    """
    yield SendFile(connection, message, file, offset, length, timeout_s)


def send_descriptor(connection: Connection, message: Message, file: File, *, timeout_s: float) -> Steps[None]:
    """Sends a frame over a local socket, and with it the open file, for reading alone; it stays open here.

    Raises OSError for a fault of the file, BadRequest over any other connection: nothing has been sent then.
    """
    yield SendDescriptor(connection, message, file, timeout_s)


def receive_descriptor(connection: Connection, *, timeout_s: float) -> Steps[tuple[Message, File | None]]:
    """The next message over a local socket, and the file that came with it, which is then closed as any other."""
    return (yield ReceiveDescriptor(connection, timeout_s))  # type: ignore[no-any-return]


def receive(
    connection: Connection, *, timeout_s: float, into: memoryview | None = None, payload_max: int | None = None
) -> Steps[Frame]:
    """The next frame; its payload is valid until the next `receive` on this connection.

    A payload for which there is room in `into` may be laid there, from its start: then `payload.obj is into.obj`.
    Of a payload that is longer than `payload_max` only so much is received; `receive_more` gives the rest, which
    `Frame.unread` tells, before anything else is received.
    """
    return (yield Receive(connection, timeout_s, into, payload_max))  # type: ignore[no-any-return]


def receive_more(
    connection: Connection, count: int, *, timeout_s: float, into: memoryview | None = None
) -> Steps[Bytes]:
    """The next `count` bytes of a payload that `receive` has begun; valid as those are, and laid as they are."""
    return (yield ReceiveMore(connection, count, timeout_s, into))  # type: ignore[no-any-return]


def next_request(connection: Connection, *, timeout_s: float) -> Steps[Frame]:
    """The same where one request is done and the next may be long in coming."""
    return (yield Receive(connection, timeout_s, None, begins_request=True))  # type: ignore[no-any-return]


def release(connection: Connection) -> Steps[None]:
    """Gives a connection back for others to use. Only between requests, when nothing is under way on it."""
    yield Release(connection)


def close(connection: Connection) -> Steps[None]:
    """For good: what is under way on it is cut off."""
    yield Close(connection)


def call(message: Message, answer: type[M], *, timeout_s: float = control_call_timeout_s) -> Steps[M]:
    """Asks the coordinator and gives its answer; raises the error of our tree that its Failure names."""
    reply = yield Call(message, timeout_s)
    if isinstance(reply, Failure):
        raise from_wire(reply.code, reply.message, reply.culprit)
    if not isinstance(reply, answer):
        raise ProtocolViolation(f"{answer.__name__} expected, {type(reply).__name__} received")
    return reply


def open_file(path: str, *, create: bool = False, written_once: bool = False) -> Steps[File]:
    """Opens for reading and appending; `create` makes a new empty one, replacing what was there.

    A file that is `written_once` is only appended to, synced, and closed: nothing of it is read before.
    """
    return (yield OpenLocalFile(path, create, written_once))  # type: ignore[no-any-return]


def append(file: File, *buffers: Bytes) -> Steps[None]:
    """Writes all of it at the end of the file."""
    yield AppendToFile(file, buffers)


def read_part(path: str, offset: int, length: int) -> Steps[bytes]:
    """Up to `length` bytes of a file that nobody needs to have opened; fewer only at its end.

    The file may stay open for the next who reads of it, for a while also without its name.
    """
    return (yield ReadPart(path, offset, length))  # type: ignore[no-any-return]


def read_at(file: File, offset: int, length: int) -> Steps[bytes]:
    """Up to `length` bytes; fewer only at the end of the file."""
    return (yield ReadAt(file, offset, length))  # type: ignore[no-any-return]


def read_into(file: File, offset: int, target: memoryview, *, timeout_s: float) -> Steps[int]:
    """Fills `target`, as far as the file goes, and says how far: for who can ask somebody else for these bytes.

    Raises PeerTimeout when the disk has not given them in time.
    """
    return (yield ReadInto(file, offset, target, timeout_s))  # type: ignore[no-any-return]


def read_ahead(file: File, offset: int, length: int) -> Steps[None]:
    """Has the disk begin to read what will be wanted, and waits for nothing: `read_at` then finds it in memory."""
    yield ReadAhead(file, offset, length)


def start_writeback(file: File) -> Steps[None]:
    """Has the disk begin to write what was appended, and waits for nothing: a later sync is short."""
    yield StartWriteback(file)


def sync(file: File) -> Steps[None]:
    """fsync. After a fault nothing in the file is to be trusted."""
    yield Sync(file)


def drop_cached(file: File) -> Steps[None]:
    """Make the next read come from the medium instead of memory, except for bytes not synced yet."""
    yield DropCached(file)


def truncate(file: File, length: int) -> Steps[None]:
    """Leaves the first `length` bytes; the next append goes there."""
    yield TruncateFile(file, length)


def close_file(file: File) -> Steps[None]:
    """Close a file; appended bytes that were not synced may be lost in a crash, as before."""
    yield CloseFile(file)


def rename(source: str, target: str) -> Steps[None]:
    """Replaces what was there, atomically; durable after `sync_directory`."""
    yield RenameFile(source, target)


def sync_directory(path: str) -> Steps[None]:
    """Makes durable which names the directory has."""
    yield SyncDirectory(path)


def remove(path: str) -> Steps[None]:
    """Removes a file; that there is none is not a fault."""
    yield Remove(path)


def make_directory(path: str) -> Steps[None]:
    """Makes a directory and its parents; that it is there is not a fault."""
    yield MakeDirectory(path)


def list_directory(path: str) -> Steps[list[tuple[str, int]]]:
    """Names and sizes of the files in a directory, sorted; sub-directories have size -1."""
    return (yield ListDirectory(path))  # type: ignore[no-any-return]


def now() -> Steps[float]:
    """Monotonic seconds: for deadlines and for how long something took."""
    return (yield Now())  # type: ignore[no-any-return]


def wall_clock() -> Steps[float]:
    """Seconds since 1970: for what is shown, or compared between machines, as a token's expiry is."""
    return (yield WallClock())  # type: ignore[no-any-return]


def sleep(seconds: float) -> Steps[None]:
    """Nothing, for so long."""
    yield Sleep(seconds)


def wait(ticket: Ticket, *, timeout_s: float) -> Steps[bool]:
    """Until the ticket fires (True) or the time is over (False)."""
    return (yield Wait(ticket, timeout_s))  # type: ignore[no-any-return]
