"""`peacefs mount` under fio and ordinary system calls, beside our client and SeaweedFS's mount.

Large files are written and read in sequence, in requests of 1 MiB: by our client in this process, and by fio on
the mounts. All clusters keep three replicas. Names and small files: the same work by our client and on the mounts.
All sides take turns in each round. Aim: large files on the mount at 0.7 of our client. SeaweedFS is the `weed` on
the path; without it, it has no rows. fio must be installed, and /dev/fuse must exist.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

from .peers.processes import running_process
from .peers.seaweedfs import NoWeed, find_weed, running_seaweedfs
from .report import show

_MIB: Final = 1 << 20
_SMALL: Final = 4096
_START_TIMEOUT_S: Final = 60.0
_CLIENT, _MOUNT, _WEED = "our client", "peacefs mount", "weed mount"
#: Does one row's work; returns the rate.
Side = Callable[[], float]


def main(*, quick: bool = False) -> None:
    if shutil.which("fio") is None or not Path("/dev/fuse").exists():
        raise SystemExit("this needs fio, and /dev/fuse: on Debian `apt-get install fio fuse3`")
    mebibytes, names, rounds = (64, 100, 2) if quick else (512, 500, 5)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        cluster = stack.enter_context(LocalCluster(directory / "peacefs", 3, port=0))
        files = stack.enter_context(PeaceFileSystem(cluster.http_address))
        mounts = {_MOUNT: stack.enter_context(_mounted(cluster.http_address, directory / "mount"))}
        try:
            mounts[_WEED] = stack.enter_context(_weed(directory))
        except NoWeed as missing:
            print(f"no rows of SeaweedFS: {missing}")
        rows = _rows(files, mounts, mebibytes, names)
        rates: dict[str, dict[str, list[float]]] = {row: {side: [] for side in rows[row]} for row in rows}
        for _ in range(rounds):
            for row, sides in rows.items():
                for side, work in sides.items():
                    rates[row][side].append(work())
    show(
        "mounts",
        f"large files of {mebibytes} MiB, {names} names and small files, the median of {rounds} rounds in turn",
        [_shown(row, side, rates[row]) for row in rows for side in rows[row]],
    )


def _shown(row: str, side: str, rates: Mapping[str, list[float]]) -> dict[str, Any]:
    ratios = [own / client for own, client in zip(rates[side], rates[_CLIENT], strict=True)]
    return {
        "row": row,
        "side": side,
        "rate": f"{statistics.median(rates[side]):,.0f}",
        "of our client's": f"{statistics.median(ratios):.2f}",
        "range": f"{min(ratios):.2f} to {max(ratios):.2f}",
    }


def _rows(
    files: PeaceFileSystem, mounts: Mapping[str, Path], mebibytes: int, names: int
) -> dict[str, dict[str, Side]]:
    client = _Client(files, mebibytes, names)
    sides = {side: _Mounted(directory, mebibytes, names) for side, directory in mounts.items()}
    return {
        f"{row}, {unit}": {
            _CLIENT: getattr(client, method),
            **{side: getattr(each, method) for side, each in sides.items()},
        }
        for row, unit, method in (
            ("sequential write", "MiB/s", "write"),
            ("sequential read", "MiB/s", "read"),
            ("random read of 4 KiB", "per s", "read_anywhere"),
            ("write a file of 4 KiB", "per s", "write_small"),
            ("read a file of 4 KiB", "per s", "read_small"),
            ("stat", "per s", "stat"),
            ("rename", "per s", "rename"),
            ("delete", "per s", "delete"),
        )
    }


class _Client:
    """Our client."""

    def __init__(self, files: PeaceFileSystem, mebibytes: int, names: int) -> None:
        self._files, self._mebibytes, self._names = files, mebibytes, names
        self._piece = os.urandom(_MIB)
        files.mkdirs("/client")

    def write(self) -> float:
        began_s = time.perf_counter()
        with self._files.open_for_writing("/client/large", overwrite=True) as sink:
            for _ in range(self._mebibytes):
                sink.write(self._piece)
        return self._mebibytes / (time.perf_counter() - began_s)

    def read(self) -> float:
        room, count = bytearray(_MIB), 0
        began_s = time.perf_counter()
        with self._files.open("/client/large") as source:
            while done := source.readinto(room):
                count += done
        assert count == self._mebibytes * _MIB
        return self._mebibytes / (time.perf_counter() - began_s)

    def read_anywhere(self) -> float:
        room = memoryview(bytearray(_SMALL))
        with self._files.open("/client/large") as source:
            places = source.length // _SMALL

            def read(number: int) -> None:
                source.read_into_at(number * 7919 % places * _SMALL, room)

            return self._each(read)

    def write_small(self) -> float:
        return self._each(lambda number: self._files.write(f"/client/{number}", self._piece[:_SMALL]))

    def read_small(self) -> float:
        return self._each(lambda number: self._files.read(f"/client/{number}"))

    def stat(self) -> float:
        return self._each(lambda number: self._files.status(f"/client/{number}"))

    def rename(self) -> float:
        return self._each(lambda number: self._files.rename(f"/client/{number}", f"/client/r{number}"))

    def delete(self) -> float:
        return self._each(lambda number: self._files.delete(f"/client/r{number}"))

    def _each(self, work: Callable[[int], object]) -> float:
        return _rate(work, self._names)


class _Mounted:
    """A mounted file system."""

    def __init__(self, directory: Path, mebibytes: int, names: int) -> None:
        self._directory, self._mebibytes, self._names = directory, mebibytes, names
        self._piece = os.urandom(_SMALL)

    def write(self) -> float:
        return self._fio("write", "--end_fsync=1")

    def read(self) -> float:
        return self._fio("read")

    def read_anywhere(self) -> float:
        descriptor = os.open(self._directory / "large", os.O_RDONLY)
        places = self._mebibytes * _MIB // _SMALL
        try:
            return self._each(lambda number: os.pread(descriptor, _SMALL, number * 7919 % places * _SMALL))
        finally:
            os.close(descriptor)

    def write_small(self) -> float:
        def write(number: int) -> None:
            with (self._directory / str(number)).open("wb", buffering=0) as file:
                file.write(self._piece)
                os.fsync(file.fileno())

        return self._each(write)

    def read_small(self) -> float:
        return self._each(lambda number: (self._directory / str(number)).read_bytes())

    def stat(self) -> float:
        return self._each(lambda number: (self._directory / str(number)).stat())

    def rename(self) -> float:
        return self._each(lambda number: (self._directory / str(number)).rename(self._directory / f"r{number}"))

    def delete(self) -> float:
        return self._each(lambda number: (self._directory / f"r{number}").unlink())

    def _each(self, work: Callable[[int], object]) -> float:
        return _rate(work, self._names)

    def _fio(self, way: str, *options: str) -> float:
        """Return what fio says of one job, in MiB/s."""
        command = ["fio", "--name=sequential", f"--filename={self._directory}/large", f"--rw={way}", "--bs=1M"]
        size = [f"--size={self._mebibytes}M", "--output-format=json", "--ioengine=psync", *options]
        done = subprocess.run([*command, *size], capture_output=True, text=True, check=True)
        # fio may warn before it reports.
        (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
        assert not job["error"]
        return float(job[way]["bw_bytes"]) / _MIB


def _rate(work: Callable[[int], object], names: int) -> float:
    began_s = time.perf_counter()
    for number in range(names):
        work(number)
    return names / (time.perf_counter() - began_s)


@contextmanager
def _mounted(address: str, directory: Path) -> Iterator[Path]:
    directory.mkdir()
    command = [sys.executable, "-m", "peacefs", "mount", "--coordinator", address, str(directory)]
    with _awaited(command, directory):
        (directory / "measured").mkdir()
        yield directory / "measured"


@contextmanager
def _weed(directory: Path) -> Iterator[Path]:
    """Yield SeaweedFS's mount, with its own defaults. Raises NoWeed."""
    weed = find_weed()
    point = directory / "weed-mount"
    point.mkdir()
    with running_seaweedfs(weed, directory, 3) as cluster:
        command = [weed, "mount", f"-filer={cluster.filer}", f"-dir={point}"]
        with _awaited(command, point):
            (point / "measured").mkdir()
            yield point / "measured"


@contextmanager
def _awaited(command: list[str], point: Path) -> Iterator[None]:
    with running_process(command, point.parent):
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not point.is_mount():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{command[0]} did not mount {point}")
            time.sleep(0.1)
        try:
            yield
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(point)], check=False)
