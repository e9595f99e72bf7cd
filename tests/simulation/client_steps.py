"""The steps of simulated clients, which call the real client code: `write_file`, `FileReader`, and so on."""

from __future__ import annotations

import itertools

from simulation.client_requests import (
    BeginRun,
    Create,
    Created,
    Delete,
    Extend,
    ListNames,
    Move,
    Names,
    Open,
    Opened,
    RunBegun,
    Truncate,
)
from simulation.name_changes import Change
from simulation.terms import CALL_TIMEOUT_S, CHUNK_BYTES, GRANT_CLIENT, HOP_TIMEOUT_S

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.chunk_buffer import ChunkBuffer
from peacefs.client.transfer.chunk_writer import write_chunk
from peacefs.client.transfer.file_appender import append_file
from peacefs.client.transfer.file_flusher import FileFlusher
from peacefs.client.transfer.file_reader import read_whole
from peacefs.client.transfer.file_writer import write_file
from peacefs.client.transfer.small_writes import SmallWrites
from peacefs.client.transfer.write_grants import GrantClient, GrantedSet, NextChunk
from peacefs.protocol import messages
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import (
    Allocated,
    Completed,
    CompleteFile,
    Done,
    GetLayout,
    Layout,
    Leased,
    WrittenChunk,
)
from peacefs.protocol.new_file import NewFile
from peacefs.runtime import effects as fx


def write(path: str, data: bytes, request_id: str, user: str = "simulated") -> fx.Steps[None]:
    """Write a file as a client."""
    yield from write_from(path, ByteStream.of(data), request_id, user)


def write_from(path: str, source: ByteStream, request_id: str = "", user: str = "simulated") -> fx.Steps[None]:
    created = yield from fx.call(Create(path, request_id, user), Created, timeout_s=CALL_TIMEOUT_S)
    yield from write_created(created, source)


def small_writes(name: str) -> SmallWrites:
    """Return a writer of small files. Its request ids begin with its name and are the same in each run."""
    numbers = itertools.count(1)
    return SmallWrites(GRANT_CLIENT, hop_timeout_s=HOP_TIMEOUT_S, new_id=lambda: f"{name}-small-{next(numbers)}")


def write_small(small: SmallWrites, path: str, data: bytes, user: str = "simulated") -> fx.Steps[None]:
    """Write a small file through a preallocated chunk if the client has one."""
    request = NewFile(path=path, user=user, overwrite=True, block_bytes=CHUNK_BYTES)
    asked = yield from small.publish_at_once(request, data)
    if asked is not None:
        created = yield from fx.call(asked, messages.Created, timeout_s=CALL_TIMEOUT_S)
        yield from small.publish_created(asked, created, data)


def write_created(created: Created, source: ByteStream) -> fx.Steps[None]:
    """Write the data of a file that the coordinator has just created."""
    yield from write_file(
        created.token,
        created.allocated,
        source,
        chunk_bytes=CHUNK_BYTES,
        grant_client=GRANT_CLIENT,
        hop_timeout_s=HOP_TIMEOUT_S,
    )


def stated(
    path: str, data: bytes, request_id: str, user: str = "simulated", grant_client: GrantClient = GRANT_CLIENT
) -> fx.Steps[None]:
    """State the sizes of all chunks of a file up front, and write each chunk when it is granted."""
    created = yield from fx.call(Create(path, request_id, user), Created, timeout_s=CALL_TIMEOUT_S)
    parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    grants = GrantedSet(grant_client, created.token, {index: len(part) for index, part in enumerate(parts)})
    written: dict[int, WrittenChunk] = {}
    failed: list[str] = []
    try:
        while (granted := (yield from grants.next())) is not None:
            written[granted.index] = yield from _write_granted(grants, granted, parts[granted.index], failed)
            grants.written(granted.index)
    except PeacefsError:
        yield from grants.give_back()
        raise
    chunks = [written[index] for index in range(len(parts))]
    yield from fx.call(CompleteFile(created.token, chunks), Completed, timeout_s=CALL_TIMEOUT_S)


def _write_granted(
    grants: GrantedSet, granted: NextChunk, part: bytes, failed: list[str]
) -> fx.Steps[WrittenChunk]:
    def again(nodes: list[str], abandoned: int | None) -> fx.Steps[Allocated]:
        given_up = [abandoned] if abandoned is not None else []
        return (yield from grants.again(granted.index, len(part), nodes, given_up))

    buffer = ChunkBuffer(ByteStream.of(part), CHUNK_BYTES)
    return (yield from write_chunk(granted.allocated, buffer, again, failed, hop_timeout_s=HOP_TIMEOUT_S))


def append(path: str, data: bytes, holder: str, user: str = "simulated") -> fx.Steps[None]:
    """Extend a file as a client."""
    yield from append_from(path, ByteStream.of(data), holder, user)


def flusher(path: str, request_id: str, holder: str, user: str = "simulated") -> fx.Steps[FileFlusher]:
    """Create a file and return its flusher."""
    created = yield from fx.call(Create(path, request_id, user), Created, timeout_s=CALL_TIMEOUT_S)
    return FileFlusher(
        created.token, created.allocated, CHUNK_BYTES, holder, GRANT_CLIENT, hop_timeout_s=HOP_TIMEOUT_S
    )


def append_from(path: str, source: ByteStream, holder: str, user: str = "simulated") -> fx.Steps[None]:
    leased = yield from fx.call(Extend(path, holder, user), Leased, timeout_s=CALL_TIMEOUT_S)
    yield from append_file(
        leased, source, chunk_bytes=leased.block_bytes, grant_client=GRANT_CLIENT, hop_timeout_s=HOP_TIMEOUT_S
    )


def truncate(path: str, length: int) -> fx.Steps[None]:
    yield from fx.call(Truncate(path, length), Done, timeout_s=CALL_TIMEOUT_S)


def read(path: str, user: str = "simulated") -> fx.Steps[bytes]:
    """Read a file as a client."""
    return (yield from read_opened((yield from open_file(path, user))))


def open_file(path: str, user: str = "simulated") -> fx.Steps[Opened]:
    return (yield from fx.call(Open(path, user), Opened, timeout_s=CALL_TIMEOUT_S))


def read_opened(opened: Opened, *, ask_again: bool = False) -> fx.Steps[bytes]:
    """Read an opened file. With `ask_again`, first request the layout, as gateways do."""
    layout = opened.layout
    if ask_again:
        layout = yield from fx.call(GetLayout(opened.token), Layout, timeout_s=CALL_TIMEOUT_S)
    return (yield from read_whole(opened.token, layout, hop_timeout_s=HOP_TIMEOUT_S))


def delete(path: str) -> fx.Steps[None]:
    yield from fx.call(Delete(path), Done, timeout_s=CALL_TIMEOUT_S)


def move(source: str, target: str) -> fx.Steps[None]:
    yield from fx.call(Move(source, target), Done, timeout_s=CALL_TIMEOUT_S)


def change(wanted: Change) -> fx.Steps[None]:
    """Request a change of the namespace."""
    yield from fx.call(wanted, Done, timeout_s=CALL_TIMEOUT_S)


def list_names(path: str, user: str = "simulated") -> fx.Steps[Names]:
    """List a directory as a client."""
    return (yield from fx.call(ListNames(path, user), Names, timeout_s=CALL_TIMEOUT_S))


def begin_run(path: str, user: str, request_id: str) -> fx.Steps[str]:
    """Become the only writer of a checkpoint root. Return the location of the run."""
    begun = yield from fx.call(BeginRun(path, user, request_id), RunBegun, timeout_s=CALL_TIMEOUT_S)
    return begun.location
