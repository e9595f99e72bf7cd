"""Ctrl-C at any moment of a write: the sending thread ends, and the writer gets KeyboardInterrupt, nothing else.

The moment is chosen: a thread writes a file to a cluster in memory, and KeyboardInterrupt is raised in it at one
step after the other, wherever Python may raise it in a program's main thread.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from peacefs.client import file_objects
from peacefs.client.file_objects import FileSink
from peacefs.client.limits import stream_buffer_bytes
from peacefs.client.transfer import byte_stream
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol.checksums import chunk_checksum
from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import MIB, chunk_bytes_max, packet_bytes
from peacefs.protocol.messages import (
    Allocated,
    Completed,
    CompleteFile,
    Created,
    GrantedChunk,
    Hop,
    Message,
    Packet,
    Receipt,
    Scheduled,
    WriteAck,
    WriteChunk,
)
from peacefs.runtime import effects, idle_reaper, thread_driver, worker_thread
from peacefs.runtime.idle_reaper import IdleReaper
from peacefs.runtime.thread_driver import ThreadDriver

SMALL, CHUNK = (Allocated(number, 9, [Hop("n1", "127.0.0.1", 1)], "chunk-token") for number in (1, 2))


class Cluster:
    """A coordinator and its slow datanode, and the connection to it."""

    def __init__(self) -> None:
        self.published: int | None = None
        self._length = 0
        self._sums = b""

    def call(self, message: Message, _timeout_s: float) -> Message:
        if isinstance(message, CompleteFile):
            self.published = sum(chunk.length for chunk in message.chunks)
            return Completed(self.published)
        return Scheduled([GrantedChunk(0, 1, 1, CHUNK)], 0)

    def connect(self, _address: object, _name: str) -> Cluster:
        return self

    def release(self, _connection: object) -> None:
        pass

    close = release

    def send(self, message: Message, payload: bytes, _timeout_s: float) -> None:
        assert isinstance(message, WriteChunk | Packet)
        self._length += len(payload)
        self._sums += message.sums
        time.sleep(0.0005)

    def receive(self, *_how: object) -> Frame:
        checksum = chunk_checksum(self._sums)
        return Frame(WriteAck(CHUNK.chunk, CHUNK.version, self._length, checksum, [Receipt("n1", b"")]))


class Interruption:
    """Raises KeyboardInterrupt in its thread at a chosen step of the watched modules."""

    def __init__(self, step: int, *modules: ModuleType) -> None:
        self._left = step
        self._files = {module.__file__ for module in modules}
        #: Where it was raised; empty until then.
        self.place = ""

    def trace(self, frame: FrameType, event: str, _given: Any) -> Callable[..., Any] | None:
        name, line = frame.f_code.co_filename, frame.f_lineno
        if name not in self._files:
            return None
        # When a `with` block releases a bare lock, Python checks for signals after the release.
        if event == "line" and linecache.getline(name, line).lstrip().startswith("with "):
            return self.trace
        self._left -= 1
        if self._left or event == "exception":
            self._left += event == "exception"
            return self.trace
        self.place = f"{event} at {name}:{line}"
        raise KeyboardInterrupt

    def run(self, work: Callable[[], None]) -> BaseException | None:
        """Run the work on a thread; return what it raised."""
        raised: list[BaseException] = []

        def traced() -> None:
            sys.settrace(self.trace)
            try:
                work()
            except BaseException as fault:
                raised.append(fault)
            finally:
                sys.settrace(None)

        thread = threading.Thread(target=traced, name="interrupted", daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"it hangs, interrupted by a {self.place}"
        return raised[0] if raised else None


def ended(name: str) -> bool:
    return not [thread for thread in threading.enumerate() if thread.name == name and thread.is_alive()]


def test_ctrl_c_at_any_step_of_a_write_ends_it_and_its_thread() -> None:
    modules = (threading, file_objects, byte_stream, effects, thread_driver, worker_thread)
    size = stream_buffer_bytes + MIB
    # Keep them, because an exception in `__del__` during the next write would be lost.
    sinks = []
    for step in range(1, 10_000, often(7, 1)):
        cluster, interruption = Cluster(), Interruption(step, *modules)
        driver = ThreadDriver(cluster, cluster.call)  # type: ignore[arg-type]
        grants = GrantClient("test", pushed=False)
        sink = FileSink(driver, Created("token", SMALL), chunk_bytes_max, "holder", grants)
        sinks.append(sink)

        def write(sink: FileSink = sink) -> None:
            with sink:
                for _ in range(size // packet_bytes):
                    sink.write(bytes(packet_bytes))

        raised = interruption.run(write)
        # For an interrupt before the end of the `with` block has begun.
        assert Interruption(0).run(sink.discard) is None
        if not interruption.place:
            assert (raised, cluster.published) == (None, size)
            return
        assert type(raised) is KeyboardInterrupt, f"interrupted by a {interruption.place}"
        wait_until(lambda: ended("peacefs-writer"), f"its thread ends, interrupted by a {interruption.place}")
    raise AssertionError("it was interrupted each time")


def test_ctrl_c_at_any_step_of_watching_what_is_idle_lets_it_be_stopped() -> None:
    for step in range(1, 1000):
        reaper, interruption = (
            IdleReaper(lambda now_s: now_s + 600, "idle test"),
            Interruption(step, threading, idle_reaper, worker_thread),
        )
        raised = interruption.run(reaper.watch)
        reaper.watch()
        # Stop it from another thread, which would block on a lock that was left locked.
        assert Interruption(0).run(reaper.stop) is None
        wait_until(lambda: ended("idle test"), f"its thread ends, interrupted by a {interruption.place}")
        if not interruption.place:
            assert raised is None
            return
        assert type(raised) is KeyboardInterrupt, f"interrupted by a {interruption.place}"
    raise AssertionError("it was interrupted each time")
