"""Clients of peacefs: our own, and bare sockets that use WebHDFS and do not parse answers."""

from __future__ import annotations

import getpass
from urllib.parse import urlsplit

from benchmarks.plain_http import PlainHttp
from peacefs.client.filesystem import PeaceFileSystem

_MIB = 1 << 20
_PIECE = bytes(_MIB)
_REPLICAS = 3


class OurClient:
    """`PeaceFileSystem`."""

    def __init__(self, address: str) -> None:
        self._files = PeaceFileSystem(address)
        self._buffer = bytearray(_MIB)

    def mkdir(self, path: str) -> None:
        self._files.mkdirs(path)

    def create(self, path: str) -> None:
        self._files.write(path, b"", replication=_REPLICAS)

    def status(self, path: str) -> None:
        self._files.status(path)

    def rename(self, source: str, target: str) -> None:
        self._files.rename(source, target)

    def delete(self, path: str) -> None:
        assert self._files.delete(path)

    def list(self, path: str) -> None:
        assert self._files.list(path)

    def write(self, path: str, data: bytes) -> None:
        self._files.write(path, data, replication=_REPLICAS)

    def read(self, path: str, length: int) -> None:
        assert len(self._files.read(path)) == length

    def write_large(self, path: str, mebibytes: int) -> None:
        with self._files.open_for_writing(path, replication=_REPLICAS) as sink:
            for _ in range(mebibytes):
                sink.write(_PIECE)

    def read_large(self, path: str, mebibytes: int) -> None:
        total = 0
        with self._files.open(path) as source:
            while count := source.readinto(self._buffer):
                total += count
        assert total == mebibytes * _MIB


class WebHdfsClient:
    """Bare sockets. Connections to datanodes are kept open, too."""

    def __init__(self, address: str) -> None:
        self._coordinator = PlainHttp(address.removeprefix("http://"))
        self._datanodes: dict[str, PlainHttp] = {}
        self._user = getpass.getuser()

    def mkdir(self, path: str) -> None:
        self._ask("PUT", path, "MKDIRS")

    def create(self, path: str) -> None:
        self.write(path, b"")

    def status(self, path: str) -> None:
        self._ask("GET", path, "GETFILESTATUS")

    def rename(self, source: str, target: str) -> None:
        self._ask("PUT", source, f"RENAME&renameoptions=NONE&destination={target}")

    def delete(self, path: str) -> None:
        self._ask("DELETE", path, "DELETE")

    def list(self, path: str) -> None:
        self._ask("GET", path, "LISTSTATUS")

    def write(self, path: str, data: bytes) -> None:
        datanode, url = self._redirected("PUT", path, f"CREATE&replication={_REPLICAS}")
        datanode.ask("PUT", url, 201, body=data)

    def read(self, path: str, length: int) -> None:
        datanode, url = self._redirected("GET", path, "OPEN")
        assert datanode.ask("GET", url, 200).body_bytes == length

    def write_large(self, path: str, mebibytes: int) -> None:
        datanode, url = self._redirected("PUT", path, f"CREATE&replication={_REPLICAS}")
        datanode.send_pieces("PUT", url, 201, _PIECE, mebibytes)

    def read_large(self, path: str, mebibytes: int) -> None:
        self.read(path, mebibytes * _MIB)

    def _ask(self, method: str, path: str, operation: str) -> None:
        self._coordinator.ask(method, self._url(path, operation), 200)

    def _redirected(self, method: str, path: str, operation: str) -> tuple[PlainHttp, str]:
        redirect = self._coordinator.ask(method, self._url(path, operation), 307)
        parts = urlsplit(redirect.location)
        datanode = self._datanodes.get(parts.netloc)
        if datanode is None:
            datanode = self._datanodes[parts.netloc] = PlainHttp(parts.netloc)
        return datanode, f"{parts.path}?{parts.query}"

    def _url(self, path: str, operation: str) -> str:
        return f"/webhdfs/v1{path}?user.name={self._user}&op={operation}"
