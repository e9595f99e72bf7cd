"""A process on an emulated host that writes when it is told: `python -m benchmarks.emulation.writer COORDINATOR`.

Orders come on stdin and answers go out on stdout, a line of JSON each. It ends with its stdin.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from math import inf

import msgspec

from peacefs.client.addresses import parse_address
from peacefs.client.byte_stream import ByteStream
from peacefs.client.calibrator import Calibrator
from peacefs.client.chunk_buffer import ChunkBuffer
from peacefs.client.chunk_writer import write_chunk
from peacefs.client.control_calls import ControlCalls
from peacefs.client.coordinator_api import CoordinatorApi, current_user, new_request_id
from peacefs.client.coordinator_http import CoordinatorHttp
from peacefs.client.grants import GrantDesk, GrantedSet
from peacefs.client.patience import Patience
from peacefs.protocol import effects as fx
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.hello import Identity
from peacefs.protocol.limits import packet_bytes
from peacefs.protocol.messages import Allocated, Completed, CompleteFile, CreateFile, WrittenChunk
from peacefs.protocol.threads import ConnectionPool, ThreadDriver


class WriteOrder(msgspec.Struct, frozen=True, tag="write"):
    """A set of so many chunks, to be asked for at `at_s` of the machine's monotonic clock. `exclude` are datanodes
    that are to get no replica of it; at most `parallel` chunks are written at once."""

    path: str
    chunks: int
    chunk_bytes: int
    replication: int
    exclude: list[str]
    parallel: int
    at_s: float


class DeleteOrder(msgspec.Struct, frozen=True, tag="delete"):
    """A tree that is not wanted any more."""

    path: str


class PolicyOrder(msgspec.Struct, frozen=True, tag="policy"):
    """What is to grant chunks from now on."""

    policy: str


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """It is so."""


class MeasureOrder(msgspec.Struct, frozen=True, tag="measure"):
    """What this datanode's disk takes in, and what is between these two racks, for so long each."""

    datanode: str
    one: list[str]
    other: list[str]
    seconds: float


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """Bytes a second: of the disk by the number of streams, and of the link."""

    disk: list[tuple[int, float]]
    link_bytes_s: float


class Written(msgspec.Struct, frozen=True, tag="written"):
    """When a set was asked for, first granted and done, by the machine's monotonic clock."""

    asked_s: float
    granted_s: float
    done_s: float


class Deleted(msgspec.Struct, frozen=True, tag="deleted"):
    """It is gone."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The first word, before any order."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Why it could not be done."""

    message: str


Order = WriteOrder | DeleteOrder | MeasureOrder | PolicyOrder
Answer = Ready | Changed | Written | Deleted | Measured | Failed


class Writer:
    """One client of the cluster."""

    def __init__(self, coordinator: str) -> None:
        where, patience = parse_address(coordinator), Patience()
        self._api = CoordinatorApi(CoordinatorHttp(where, patience), current_user())
        self._connections = ConnectionPool(Identity("", "client", f"writer {os.getpid()}", None))
        self._calls = ControlCalls(where, self._connections, patience)
        self._driver = ThreadDriver(self._connections, self._calls.call)
        self._desk = GrantDesk(f"writer {os.getpid()}", pushed=False)
        self._piece = os.urandom(packet_bytes)

    def obey(self, order: Order) -> Answer:
        try:
            match order:
                case WriteOrder():
                    return self._write(order)
                case PolicyOrder(policy):
                    self._api.change_policy(policy)
                    return Changed()
                case DeleteOrder(path):
                    self._api.delete(path, recursive=True)
                    return Deleted()
                case MeasureOrder(datanode, one, other, seconds):
                    calibrator = Calibrator(self._api, self._driver, seconds)
                    return Measured(calibrator.disk(datanode), calibrator.link(one, other).bytes_s)
        except PeacefsError as error:
            return Failed(error.message)

    def _write(self, order: WriteOrder) -> Written:
        time.sleep(max(0.0, order.at_s - time.monotonic()))
        created = self._calls.create(
            CreateFile(
                request_id=new_request_id(),
                path=order.path,
                user=self._api.user,
                replication=order.replication,
                block_bytes=order.chunk_bytes,
            )
        )
        chunks = dict.fromkeys(range(order.chunks), order.chunk_bytes)
        grants = GrantedSet(self._desk, created.token, chunks, exclude=order.exclude)
        written = _SetWriter(self._driver, order, grants, self._piece)
        chunks_written = written.run()
        self._driver.run(_complete(created.token, chunks_written))
        return Written(order.at_s, written.granted_s, time.monotonic())


def _complete(token: str, chunks: list[WrittenChunk]) -> fx.Steps[Completed]:
    return (yield from fx.call(CompleteFile(token, chunks), Completed))


class _SetWriter:
    """Chunks of one file, several at once, each when it is granted."""

    def __init__(self, driver: ThreadDriver, order: WriteOrder, grants: GrantedSet, piece: bytes) -> None:
        self._driver = driver
        self._order = order
        self._grants = grants
        self._piece = piece
        self._lock = threading.Lock()
        self._written: dict[int, WrittenChunk] = {}
        self._error: PeacefsError | None = None
        #: When the first grant came.
        self.granted_s = inf

    def run(self) -> list[WrittenChunk]:
        threads = [threading.Thread(target=self._keep_writing) for _ in range(self._order.parallel)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return [self._written[number] for number in range(self._order.chunks)]

    def _keep_writing(self) -> None:
        try:
            while self._error is None and self._driver.run(self._write_next()):
                pass
        except PeacefsError as error:
            self._error = error

    def _write_next(self) -> fx.Steps[bool]:
        """False when every chunk has somebody who writes it."""
        granted = yield from self._grants.next()
        if granted is None:
            return False
        now_s = yield from fx.now()
        with self._lock:
            self.granted_s = min(self.granted_s, now_s)
        index, size = granted.index, self._order.chunk_bytes

        def again(failed: list[str], abandoned: int | None) -> fx.Steps[Allocated]:
            given_up = [abandoned] if abandoned is not None else []
            return (yield from self._grants.again(index, size, failed, given_up))

        buffer = ChunkBuffer(_stream(self._piece, size), size)
        self._written[index] = yield from write_chunk(granted.allocated, buffer, again, [])
        self._grants.written(index)
        return True


def _stream(piece: bytes, length: int) -> ByteStream:
    stream = ByteStream()
    for at in range(0, length, len(piece)):
        stream.feed(piece[: length - at])
    stream.finish()
    return stream


def main() -> None:
    writer = Writer(sys.argv[1])
    orders = msgspec.json.Decoder(Order)
    _say(Ready())
    for line in sys.stdin.buffer:
        _say(writer.obey(orders.decode(line)))


def _say(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
