"""The ways to reach a cluster's files, each used as its own users would use it."""

from __future__ import annotations

import contextlib
import getpass
import importlib
import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from benchmarks.hadoop_client import HadoopFiles, hadoop_jvm
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

OURS = "our client"
OURS_OF_FSSPEC = "peace:// of fsspec"
LOCAL = "local disk, one copy"
_REASONS = {
    LOCAL: "one copy, no network, no checksums",
    "curl": "a process of its own, which keeps nothing of what it reads",
    "Hadoop's client": "it keeps nothing of what it reads",
}


class Way(Protocol):
    """One client, callable from any thread. `write` takes a path below the client's own directory."""

    def write(self, path: str, data: bytes) -> None: ...

    def read(self, path: str) -> int:
        """Read a file; return the number of bytes."""
        ...

    def look(self, path: str) -> None:
        """Ask for the status of a path."""
        ...

    def remove(self, path: str) -> None:
        """Delete a path, for the next round."""
        ...


def reason_to_be_ahead(way: str, ahead_in: list[str]) -> str:
    """Return why another way is faster than ours, for its row."""
    if not ahead_in:
        return ""
    reason = _REASONS.get(way, "no reason is known; look into it")
    return f"{', '.join(ahead_in)}: {reason}"


class OurClient:
    """`PeaceFileSystem`."""

    def __init__(self, files: PeaceFileSystem, top: str) -> None:
        self._files = files
        self._top = top

    def write(self, path: str, data: bytes) -> None:
        self._files.write(f"{self._top}/{path}", data)

    def read(self, path: str) -> int:
        return len(self._files.read(f"{self._top}/{path}"))

    def look(self, path: str) -> None:
        self._files.status(f"{self._top}/{path}")

    def remove(self, path: str) -> None:
        self._files.delete(f"{self._top}/{path}")


class FsspecWay:
    """Any file system of fsspec."""

    def __init__(self, fs: Any, top: str) -> None:
        self._fs = fs
        self._top = top

    def write(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(f"{self._top}/{path}", data)

    def read(self, path: str) -> int:
        return len(self._fs.cat_file(f"{self._top}/{path}"))

    def look(self, path: str) -> None:
        self._fs.info(f"{self._top}/{path}")

    def remove(self, path: str) -> None:
        self._fs.rm(f"{self._top}/{path}")


class HdfsPackage:
    """`InsecureClient` of the package `hdfs`."""

    def __init__(self, address: str, top: str) -> None:
        # The package is optional for type checks.
        self._client: Any = importlib.import_module("hdfs").InsecureClient(address, user=getpass.getuser())
        self._top = top

    def write(self, path: str, data: bytes) -> None:
        self._client.write(f"{self._top}/{path}", data=data)

    def read(self, path: str) -> int:
        with self._client.read(f"{self._top}/{path}") as reader:
            return len(reader.read())

    def look(self, path: str) -> None:
        self._client.status(f"{self._top}/{path}")

    def remove(self, path: str) -> None:
        self._client.delete(f"{self._top}/{path}")


class HadoopWay:
    """Hadoop's client. Its data stays in the JVM, and has the size given at its creation."""

    def __init__(self, of_length: dict[int, HadoopFiles], top: str) -> None:
        self._of_length = of_length
        self._any = next(iter(of_length.values()))
        self._top = top

    def write(self, path: str, data: bytes) -> None:
        self._of_length[len(data)].write(f"{self._top}/{path}")

    def read(self, path: str) -> int:
        return self._any.read(f"{self._top}/{path}")

    def look(self, path: str) -> None:
        self._any.look(f"{self._top}/{path}")

    def remove(self, path: str) -> None:
        self._any.delete(f"{self._top}/{path}")


class Curl:
    """A process for each file, as in scripts."""

    def __init__(self, address: str, top: str, directory: Path) -> None:
        self._address = f"{address}/webhdfs/v1{top}"
        self._directory = directory
        self._sources: dict[int, Path] = {}

    def _run(self, *arguments: str) -> bytes:
        command = ["curl", "--silent", "--show-error", "--fail", "--location", *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def write(self, path: str, data: bytes) -> None:
        source = self._directory / f"curl-{len(data)}"
        if not source.exists():
            source.write_bytes(data)
        self._run("--upload-file", str(source), f"{self._url(path)}CREATE")

    def read(self, path: str) -> int:
        return int(self._run("--output", "/dev/null", "--write-out", "%{size_download}", f"{self._url(path)}OPEN"))

    def look(self, path: str) -> None:
        self._run(f"{self._url(path)}GETFILESTATUS")

    def remove(self, path: str) -> None:
        self._run("--request", "DELETE", f"{self._url(path)}DELETE")

    def _url(self, path: str) -> str:
        return f"{self._address}/{path}?user.name={getpass.getuser()}&op="


class LocalDisk:
    """The local disk: one copy, with an fsync of files but not of directories."""

    def __init__(self, top: Path) -> None:
        self._top = top

    def write(self, path: str, data: bytes) -> None:
        with (self._top / path).open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def read(self, path: str) -> int:
        return len((self._top / path).read_bytes())

    def look(self, path: str) -> None:
        (self._top / path).stat()

    def remove(self, path: str) -> None:
        (self._top / path).unlink()


def webhdfs_of_fsspec(cluster: LocalCluster) -> Any:
    """Open fsspec's own file system for WebHDFS. Raises ImportError if it is not installed."""
    from fsspec.implementations.webhdfs import WebHDFS

    host, port = cluster.address.host, cluster.address.port
    return WebHDFS(host, port=port, user=getpass.getuser(), skip_instance_cache=True)


def peace_of_fsspec(cluster: LocalCluster) -> Any:
    from peacefs.client.fsspec.filesystem import PeaceFsspecFileSystem

    return PeaceFsspecFileSystem(cluster.address.host, cluster.address.port)


@contextlib.contextmanager
def all_ways(cluster: LocalCluster, directory: Path, lengths: list[int]) -> Iterator[dict[str, Way]]:
    """Return each way by name, with its own existing directory. Print which ways are not installed."""
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(PeaceFileSystem(cluster.http_address))
        fsspec_of_ours = peace_of_fsspec(cluster)
        stack.callback(lambda: fsspec_of_ours.files.close())
        makers: dict[str, Callable[[str], Way]] = {
            OURS: lambda top: OurClient(files, top),
            OURS_OF_FSSPEC: lambda top: FsspecWay(fsspec_of_ours, top),
            "webhdfs:// of fsspec": lambda top: FsspecWay(webhdfs_of_fsspec(cluster), top),
        }
        if importlib.util.find_spec("hdfs"):
            makers["package hdfs"] = lambda top: HdfsPackage(cluster.http_address, top)
        else:
            print("the package hdfs is not installed: left out", flush=True)
        gateway = stack.enter_context(hadoop_jvm(directory))
        of_length = {length: HadoopFiles(gateway, cluster.webhdfs_uri, length) for length in lengths}
        makers["Hadoop's client"] = lambda top: HadoopWay(of_length, top)
        makers["curl"] = lambda top: Curl(cluster.http_address, top, directory)
        ways: dict[str, Way] = {}
        for number, (name, make) in enumerate(makers.items()):
            files.mkdirs(f"/clients/{number}")
            ways[name] = make(f"/clients/{number}")
        local = directory / "local"
        local.mkdir()
        yield ways | {LOCAL: LocalDisk(local)}
