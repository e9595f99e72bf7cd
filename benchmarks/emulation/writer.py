"""A process on an emulated host that writes on order: `python -m benchmarks.emulation.writer COORDINATOR`.

It reads orders from stdin and writes answers to stdout, one line of JSON each. Orders are executed concurrently
and answered in order. It ends at the end of stdin.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import Future
from queue import SimpleQueue

import msgspec

from peacefs.client.calibrator import Calibrator
from peacefs.client.control.addresses import parse_address
from peacefs.client.control.api import CoordinatorApi, current_user
from peacefs.client.control.http import CoordinatorHttp
from peacefs.client.control.names import NameApi
from peacefs.client.control.retry import RetryPolicy
from peacefs.client.control.rpc import ControlRpc
from peacefs.client.transfer.write_grants import EarlierTry, GrantClient, GrantedSet
from peacefs.protocol.handshake import Identity
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.limits import packet_bytes
from peacefs.protocol.messages import Completed, CompleteFile, CreateFile, WrittenChunk
from peacefs.protocol.new_file import NewFile
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

from .orders import (
    Answer,
    Changed,
    Deleted,
    DeleteOrder,
    Failed,
    LinkMeasured,
    Measured,
    MeasureLinkOrder,
    MeasureOrder,
    Order,
    PolicyOrder,
    Ready,
    Uploaded,
    UploadOrder,
    WriteOrder,
    Written,
)
from .set_writer import SetWriter
from .upload import upload


class Writer:
    """One client of the cluster. Thread-safe."""

    def __init__(self, coordinator: str) -> None:
        where, retry_policy = parse_address(coordinator), RetryPolicy()
        self._coordinator = coordinator
        self._api = CoordinatorApi(CoordinatorHttp(where, retry_policy), current_user())
        self._connections = ConnectionPool(Identity("", "client", f"writer {os.getpid()}", None))
        self._calls = ControlRpc(where, self._connections, retry_policy)
        self._names = NameApi(self._calls, self._api.user)
        self._driver = ThreadDriver(self._connections, self._calls.call)
        self._grant_client = GrantClient(f"writer {os.getpid()}", pushed=False)
        self._piece = os.urandom(packet_bytes)

    def obey(self, order: Order) -> Answer:
        match order:
            case WriteOrder():
                return self._write(order)
            case UploadOrder():
                _wait_until(order.at_s)
                upload(self._coordinator, order, self._api.user, self._piece)
                return Uploaded(time.monotonic())
            case PolicyOrder(policy):
                self._api.change_policy(policy)
                return Changed()
            case DeleteOrder(path):
                self._names.delete(path, recursive=True)
                return Deleted()
            case MeasureOrder(datanode, seconds):
                return Measured(Calibrator(self._api, self._driver, seconds).disk(datanode))
            case MeasureLinkOrder(one, other, seconds):
                return LinkMeasured(Calibrator(self._api, self._driver, seconds).link(one, other).bytes_s)

    def _write(self, order: WriteOrder) -> Written:
        _wait_until(order.at_s)
        created = self._calls.create(
            CreateFile(
                NewFile(
                    path=order.path,
                    user=self._api.user,
                    replication=order.replication,
                    block_bytes=max(order.chunks),
                    request_id=new_request_id(),
                    write_class=order.write_class,
                )
            )
        )
        grants = GrantedSet(
            self._grant_client, created.token, dict(enumerate(order.chunks)), earlier=EarlierTry(order.exclude)
        )
        written = SetWriter(self._driver, order, grants, self._piece)
        chunks_written = written.run()
        self._driver.run(_complete(created.token, chunks_written))
        done_s = time.monotonic()
        if not order.kept:
            self._names.delete(order.path)
        return Written(order.at_s, written.granted_s, done_s)


def _wait_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def _complete(token: str, chunks: list[WrittenChunk]) -> fx.Steps[Completed]:
    return (yield from fx.call(CompleteFile(token, chunks), Completed))


def main() -> None:
    writer = Writer(sys.argv[1])
    orders = msgspec.json.Decoder[Order](Order)
    answers: SimpleQueue[Future[Answer]] = SimpleQueue()
    answers.put(_at_once(Ready()))
    threading.Thread(target=_say_all, args=(answers,), daemon=True).start()
    for line in sys.stdin.buffer:
        answer: Future[Answer] = Future()
        answers.put(answer)
        threading.Thread(target=_obey, args=(writer, orders.decode(line), answer), daemon=True).start()


def _at_once(answer: Answer) -> Future[Answer]:
    known: Future[Answer] = Future()
    known.set_result(answer)
    return known


def _obey(writer: Writer, order: Order, answer: Future[Answer]) -> None:
    try:
        answer.set_result(writer.obey(order))
    except Exception as error:  # report every error to the benchmark
        answer.set_result(Failed(f"{type(error).__name__}: {error}"))


def _say_all(answers: SimpleQueue[Future[Answer]]) -> None:
    while True:
        sys.stdout.buffer.write(msgspec.json.encode(answers.get().result()) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
