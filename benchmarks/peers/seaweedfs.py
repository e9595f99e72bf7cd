"""SeaweedFS: the `weed` on the path as one master, volume servers and a filer, with clients over HTTP."""

from __future__ import annotations

import shutil
import socket
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.plain_http import PlainHttp

from .processes import running_process

_MIB = 1 << 20
_PIECE = bytes(_MIB)
_HOST = "127.0.0.1"
#: Offset from its HTTP port to its gRPC port.
_GRPC_ABOVE = 10_000
#: Replication: two more copies, on other servers of the same rack.
_REPLICATION = "002"
_START_TIMEOUT_S = 60.0


class NoWeed(Exception):
    """SeaweedFS is not installed."""


@dataclass(frozen=True)
class SeaweedCluster:
    """A running SeaweedFS cluster. Clients connect to `filer`."""

    filer: str
    servers: Sequence[int]


def find_weed() -> str:
    """Return the program. Raises NoWeed."""
    found = shutil.which("weed")
    if found is None:
        raise NoWeed("there is no `weed` on the path")
    return found


@contextmanager
def running_seaweedfs(weed: str, directory: Path, volume_servers: int) -> Iterator[SeaweedCluster]:
    """Yield a cluster that has stored a file. Raises RuntimeError if it does not start."""
    with ExitStack() as stack:
        pids: list[int] = []

        def start(role: str, *arguments: str) -> str:
            port = _free_port()
            home = directory / f"{role}-{port}"
            home.mkdir(parents=True)
            command = [weed, role, f"-ip={_HOST}", f"-ip.bind={_HOST}", f"-port={port}"]
            given = [argument.replace("HOME", str(home)) for argument in arguments]
            process = stack.enter_context(running_process([*command, *given], home))
            pids.append(process.pid)
            return f"{_HOST}:{port}"

        master = start("master", "-mdir=HOME", f"-defaultReplication={_REPLICATION}")
        for _ in range(volume_servers):
            start("volume", "-dir=HOME", "-max=100", f"-mserver={master}")
        filer = start(
            "filer", f"-master={master}", "-defaultStoreDir=HOME", f"-defaultReplicaPlacement={_REPLICATION}"
        )
        _await_first_write(filer)
        yield SeaweedCluster(filer, pids)


def _free_port() -> int:
    while True:
        with socket.socket() as probe, socket.socket() as above:
            probe.bind((_HOST, 0))
            port: int = probe.getsockname()[1]
            if port + _GRPC_ABOVE < 1 << 16:
                try:
                    above.bind((_HOST, port + _GRPC_ABOVE))
                except OSError:
                    continue
                return port


def _await_first_write(filer: str) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        request = urllib.request.Request(f"http://{filer}/started?fsync=true", b"it has", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5.0):
                return
        except OSError as error:
            if time.monotonic() >= deadline_s:
                raise RuntimeError(f"SeaweedFS did not start: {error}") from None
            time.sleep(0.2)


class SeaweedClient:
    """Bare sockets to the filer, through which all data goes. Data is synced."""

    def __init__(self, filer: str) -> None:
        self._http = PlainHttp(filer)

    def mkdir(self, path: str) -> None:
        self._http.ask("POST", f"{path}/", 201)

    def create(self, path: str) -> None:
        self.write(path, b"")

    def status(self, path: str) -> None:
        self._http.ask("GET", f"{path}?metadata=true", 200)

    def rename(self, source: str, target: str) -> None:
        self._http.ask("POST", f"{target}?mv.from={source}", 204)

    def delete(self, path: str) -> None:
        self._http.ask("DELETE", path, 204)

    def list(self, path: str) -> None:
        self._http.ask("GET", f"{path}/?limit=1000000", 200, header="accept: application/json")

    def write(self, path: str, data: bytes) -> None:
        self._http.ask("PUT", f"{path}?fsync=true", 201, body=data)

    def read(self, path: str, length: int) -> None:
        assert self._http.ask("GET", path, 200).body_bytes == length

    def write_large(self, path: str, mebibytes: int) -> None:
        self._http.send_pieces("PUT", f"{path}?fsync=true", 201, _PIECE, mebibytes)

    def read_large(self, path: str, mebibytes: int) -> None:
        self.read(path, mebibytes * _MIB)
