"""Measure what plain TCP carries over an emulated link, as a limit for chunks.

Count only bytes that arrive between two moments when all flows run steadily, so that the filling and draining of
pipelines does not count. Each end of a flow is a process of its own: `python -m benchmarks.emulation.flows sink
ADDRESS`, `python -m benchmarks.emulation.flows source ADDRESS PORT`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import IO

from .network import Host

_ROOT = Path(__file__).parents[2]
_PIECE_BYTES = 1 << 16
_FLOWS = 4

#: Seconds until flows reach a steady rate.
_LEAD_S = 1.0


def between(one: Sequence[Host], other: Sequence[Host], seconds: float) -> float:
    """Return the bytes per second that each side receives from the other, as the mean of both directions.

    A few flows run in each direction at the same time, as chunks do: acknowledgements of one direction take their
    share of the other.
    """
    there, back = zip(one, other, strict=False), zip(reversed(other), reversed(one), strict=False)
    ways = [list(pairs)[:_FLOWS] for pairs in (there, back)]
    sinks = [_start("sink", target, target.address) for _, target in chain(*ways)]
    ports = [_line(sink.stdout) for sink in sinks]
    sources = [
        _start("source", source, target.address, port)
        for (source, target), port in zip(chain(*ways), ports, strict=True)
    ]
    try:
        for sink in sinks:
            _line(sink.stdout)
        begin_s = time.monotonic() + _LEAD_S
        for sink in sinks:
            assert sink.stdin is not None
            sink.stdin.write(f"{begin_s} {begin_s + seconds}\n")
            sink.stdin.flush()
        taken = [int(_line(sink.stdout)) for sink in sinks]
    finally:
        for process in (*sinks, *sources):
            process.kill()
            process.communicate()
    first = len(ways[0])
    return fmean((sum(taken[:first]), sum(taken[first:]))) / seconds


def _start(role: str, host: Host, *arguments: str) -> subprocess.Popen[str]:
    command = [*host.inside(), sys.executable, "-m", "benchmarks.emulation.flows", role, *arguments]
    return subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline().strip()
    if not line:
        raise RuntimeError("a flow that was to measure a link has ended early")
    return line


# -- the processes ---------------------------------------------------------------------------------


def _sink(address: str) -> None:
    """Print the port; report a source; read from when until when to count; print the number of bytes."""
    with socket.create_server((address, 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    print("connected", flush=True)
    begin_s, end_s = map(float, sys.stdin.readline().split())
    taken = 0
    with connection:
        while (piece := connection.recv(_PIECE_BYTES)) and time.monotonic() < end_s:
            if time.monotonic() >= begin_s:
                taken += len(piece)
    print(taken, flush=True)


def _source(address: str, port: int) -> None:
    piece = bytes(_PIECE_BYTES)
    with socket.create_connection((address, port)) as connection:
        try:
            while True:
                connection.sendall(piece)
        except OSError:
            return  # the sink has counted enough


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sink", address]:
            _sink(address)
        case ["source", address, port]:
            _source(address, int(port))
