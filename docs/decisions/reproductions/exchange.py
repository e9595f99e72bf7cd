"""Reproduce the table of decision 35: what it costs to hand a batch to another process, over loopback.

python docs/decisions/reproductions/exchange.py [ROWS ...]
"""

from __future__ import annotations

import pickle
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

_LENGTH = struct.Struct(">I")
_SECONDS = 2.0


def batch_of(rows: int) -> pa.RecordBatch:
    numbers = np.arange(rows)
    times = pa.array(numbers).cast(pa.timestamp("us"))
    hosts = pa.array([f"host-{number % 97}" for number in range(rows)])
    return pa.record_batch({"number": pa.array(numbers), "at": times, "host": hosts})


def over_a_socket(
    batch: pa.RecordBatch, write: Callable[[pa.RecordBatch], bytes], read: Callable[[bytes], object]
) -> float:
    """Return the microseconds for a batch, written on one thread and read on another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def receive() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb", buffering=1 << 20) as file:
                while head := file.read(_LENGTH.size):
                    read(file.read(_LENGTH.unpack(head)[0]))

        receiver = threading.Thread(target=receive)
        receiver.start()
        sent, begun_s = 0, time.perf_counter()
        with socket.create_connection(listener.getsockname()) as sender:
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while time.perf_counter() - begun_s < _SECONDS:
                data = write(batch)
                sender.sendall(_LENGTH.pack(len(data)))
                sender.sendall(data)
                sent += 1
        receiver.join()
        return (time.perf_counter() - begun_s) / sent * 1e6


def as_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class _Server(flight.FlightServerBase):
    def do_put(self, context: object, descriptor: object, reader: object, writer: object) -> None:
        for _ in reader:  # type: ignore[attr-defined]
            pass


def over_flight(batch: pa.RecordBatch) -> float:
    server = _Server("grpc://127.0.0.1:0")
    client = flight.connect(("127.0.0.1", server.port))
    sent, begun_s = 0, time.perf_counter()
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("x"), batch.schema)
    while time.perf_counter() - begun_s < _SECONDS:
        writer.write_batch(batch)
        sent += 1
    writer.close()
    took_us = (time.perf_counter() - begun_s) / sent * 1e6
    client.close()
    server.shutdown()
    return took_us


def main() -> None:
    print("| rows | IPC message | IPC stream each | pickle | pickle of Python rows | Flight |")
    for rows in map(int, sys.argv[1:] or (1, 100, 1000, 10_000)):
        batch = batch_of(rows)
        took = [
            over_a_socket(
                batch,
                pa.RecordBatch.serialize,
                lambda data, batch=batch: pa.ipc.read_record_batch(pa.py_buffer(data), batch.schema),
            ),
            over_a_socket(batch, as_stream, lambda data: next(iter(pa.ipc.open_stream(data)))),
            over_a_socket(batch, pickle.dumps, pickle.loads),
            over_a_socket(
                batch,
                lambda batch: pickle.dumps(batch.to_pylist()),
                lambda data, batch=batch: pa.RecordBatch.from_pylist(pickle.loads(data), batch.schema),
            ),
            over_flight(batch),
        ]
        print(f"| {rows} |", " | ".join(f"{us:.0f}" for us in took), "|")


if __name__ == "__main__":
    main()
