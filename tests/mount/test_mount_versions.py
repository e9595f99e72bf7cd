"""Other machines see whole versions of files written on a mount, after a close or sync."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.mounted_tree import MountProcess, mounted, require_fuse
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster
MIB = 1 << 20


@pytest.fixture
def own_mount(shared_cluster: LocalCluster, tmp_path: Path) -> Iterator[MountProcess]:
    """Yield a mount that the test may kill, with 4 MiB for staged files."""
    require_fuse()
    with mounted(shared_cluster.http_address, tmp_path / "own", "--staging-size", "4m") as mount:
        yield mount


@pytest.mark.parametrize("size", [10, 20 * MIB])
def test_file_appears_whole_when_it_is_closed(here: Path, home: str, files: PeaceFileSystem, size: int) -> None:
    with (here / "new").open("wb") as new:
        new.write(b"x" * size)
        new.flush()
        assert (here / "new").read_bytes() == b"x" * size, "processes of this machine see it"
        assert not files.exists(f"{home}/new")
    assert files.read(f"{home}/new") == b"x" * size


@pytest.mark.parametrize("size", [10, 20 * MIB])
def test_file_that_is_replaced_stays_until_the_new_one_is_closed(
    here: Path, home: str, files: PeaceFileSystem, size: int
) -> None:
    files.write(f"{home}/file", b"old")
    files.set_permission(f"{home}/file", 0o640)
    files.xattrs.set(f"{home}/file", "user.origin", b"sensors")
    with (here / "file").open("wb") as new:
        new.write(b"x" * size)
        new.flush()
        assert files.read(f"{home}/file") == b"old"
    assert files.read(f"{home}/file") == b"x" * size
    assert files.status(f"{home}/file").permission == 0o640
    assert files.xattrs.get(f"{home}/file") == {"user.origin": b"sensors"}


def test_fsync_publishes_and_the_file_goes_on(here: Path, home: str, files: PeaceFileSystem) -> None:
    with (here / "log").open("ab", buffering=0) as log:
        for number in range(4):
            log.write(b"%d\n" % number)
            os.fsync(log.fileno())
            assert files.read(f"{home}/log") == b"".join(b"%d\n" % each for each in range(number + 1))
        log.write(b"last\n")
    assert files.read(f"{home}/log").endswith(b"3\nlast\n")


def test_truncate_by_path_is_published_while_others_read(here: Path, home: str, files: PeaceFileSystem) -> None:
    files.write(f"{home}/file", b"abc")
    with (here / "file").open("rb") as reader:
        os.truncate(here / "file", 5)
        assert files.read(f"{home}/file") == b"abc\0\0"
        assert reader.read() == b"abc\0\0"


def test_duplicated_descriptors_count_as_one(here: Path, home: str, files: PeaceFileSystem) -> None:
    # The shell and `dd` close a descriptor after duplicating it, and a child closes inherited ones.
    script = "(echo one; head -c 3000000 /dev/zero; read wait; echo two) > file"
    with subprocess.Popen(["sh", "-c", script], cwd=here, stdin=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        wait_until(
            lambda: (here / "file").exists() and (here / "file").stat().st_size > 2_900_000, "its first part"
        )
        assert not files.exists(f"{home}/file")
        shell.stdin.write(b"\n")
    assert files.read(f"{home}/file") == b"one\n" + bytes(3_000_000) + b"two\n"


def test_mount_that_is_killed_leaves_no_file_half_visible(
    own_mount: MountProcess, home: str, files: PeaceFileSystem
) -> None:
    directory = own_mount.directory / home.lstrip("/")
    files.write(f"{home}/replaced", b"old")
    files.write(f"{home}/appended", b"old")
    opened = [os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("new", "replaced")]
    opened.append(os.open(directory / "appended", os.O_WRONLY | os.O_APPEND))
    opened.append(os.open(directory / "synced", os.O_WRONLY | os.O_CREAT))
    os.write(opened[3], b"safe")
    os.fsync(opened[3])
    copying = subprocess.Popen(["dd", "if=/dev/zero", f"of={directory}/dd", "bs=1M"], stderr=subprocess.DEVNULL)
    try:
        for descriptor in opened:
            for _ in range(12):
                os.write(descriptor, b"x" * MIB)
        wait_until(lambda: (directory / "dd").exists() and (directory / "dd").stat().st_size > 8 * MIB, "dd")
    finally:
        own_mount.kill()
        copying.send_signal(signal.SIGKILL)
        copying.wait(30)
    with pytest.raises(OSError, match="not connected"):
        os.write(opened[0], b"x")
    for descriptor in opened:
        try:
            os.close(descriptor)
        except OSError as ended:
            gone = ended.errno
            assert gone in (errno.ENOTCONN, errno.ECONNABORTED)
    found = {entry.name: files.read(entry.path) for entry in files.list(home)}
    assert found == {"replaced": b"old", "appended": b"old", "synced": b"safe"}


def test_file_that_another_machine_deleted_can_be_created_at_once(
    here: Path, home: str, files: PeaceFileSystem
) -> None:
    for number in range(3):
        files.write(f"{home}/file", b"old")
        assert (here / "file").stat().st_size == 3, "the kernel knows the name"
        files.delete(f"{home}/file")
        if number == 1:
            with pytest.raises(FileNotFoundError):
                (here / "file").read_bytes()
        (here / "file").write_bytes(b"new")
        assert files.read(f"{home}/file") == b"new"
        files.delete(f"{home}/file")


def test_readers_of_a_file_that_others_replace_see_whole_versions(
    here: Path, home: str, files: PeaceFileSystem
) -> None:
    versions = [bytes([65 + number]) * size for number, size in enumerate((1000, 300_000, 5, 2 * MIB))]
    files.write(f"{home}/file", versions[0])
    stop = threading.Event()

    def replace() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            files.write(f"{home}/file", versions[number % len(versions)], overwrite=True)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for number in range(40):
            with (here / "file").open("rb", buffering=0) as opened:
                if number % 4:
                    read = b"".join(iter(lambda: opened.read(100_000), b""))
                else:
                    size = os.fstat(opened.fileno()).st_size
                    with mmap.mmap(opened.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
                        first = mapped[:1]
                    read = next(version for version in versions if version[:1] == first)
            assert read in versions, f"{len(read)} bytes of {set(read)}"
    finally:
        stop.set()
        writer.join()


def test_open_file_stays_the_version_that_was_opened(here: Path, home: str, files: PeaceFileSystem) -> None:
    files.write(f"{home}/file", b"a" * 200_000)
    with (here / "file").open("rb", buffering=0) as old:
        assert old.read(10) == b"a" * 10
        files.write(f"{home}/file", b"b" * 300_000, overwrite=True)
        with (here / "file").open("rb", buffering=0) as new:
            assert new.read(5) == b"b" * 5
            assert old.read(5) == b"a" * 5
            assert len(os.pread(new.fileno(), 400_000, 0)) == 300_000
            assert os.pread(old.fileno(), 400_000, 0) == b"a" * 200_000


def test_reader_follows_what_another_machine_appends(here: Path, home: str, files: PeaceFileSystem) -> None:
    files.write(f"{home}/log", b"first\n")
    with (here / "log").open("rb", buffering=0) as log:
        assert log.read(100) == b"first\n"
        with files.open_for_appending(f"{home}/log") as sink:
            sink.write(b"second\n")
        wait_until(lambda: os.fstat(log.fileno()).st_size == 13, "the longer file")
        assert log.read(100) == b"second\n"


def test_write_in_the_middle_beyond_the_room_is_refused(
    own_mount: MountProcess, home: str, files: PeaceFileSystem
) -> None:
    directory = own_mount.directory / home.lstrip("/")
    files.write(f"{home}/long", b"x" * 5 * MIB)
    with (directory / "long").open("r+b", buffering=0) as long:
        with pytest.raises(OSError, match="File too large") as refused:
            long.write(b"y")
        assert refused.value.errno == errno.EFBIG
        long.seek(0, os.SEEK_END)
        long.write(b"end")
    assert files.read(f"{home}/long") == b"x" * 5 * MIB + b"end"
    with (directory / "streamed").open("wb", buffering=0) as streamed:
        for _ in range(6):
            streamed.write(b"x" * MIB)
        streamed.seek(0)
        with pytest.raises(OSError, match="File too large"):
            streamed.write(b"y")
    assert files.read(f"{home}/streamed") == b"x" * 6 * MIB
    # The space is free again.
    (directory / "short").write_bytes(b"x" * 3 * MIB)
    with (directory / "short").open("r+b", buffering=0) as short:
        short.write(b"y")
    assert files.read(f"{home}/short")[:2] == b"yx"


def test_exclusive_file_of_two_machines_is_made_by_one(
    here: Path, own_mount: MountProcess, home: str, files: PeaceFileSystem
) -> None:
    other = own_mount.directory / home.lstrip("/")
    first = os.open(here / "lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(first, b"first")
    # Use a separate process, as on another machine.
    second = "import sys; open(sys.argv[1], 'x').write('second')"
    subprocess.run([sys.executable, "-c", second, str(other / "lock")], check=True, timeout=60)
    with pytest.raises(FileExistsError):
        os.close(first)
    assert files.read(f"{home}/lock") == b"second"


def test_several_processes_share_a_file(here: Path, home: str, files: PeaceFileSystem) -> None:
    program = (
        "import os, sys\n"
        "log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "for number in range(50):\n"
        "    os.write(log, b'%s %d\\n' % (sys.argv[2].encode(), number))\n"
    )
    command = [sys.executable, "-c", program, str(here / "log")]
    writers = [subprocess.Popen([*command, name]) for name in ("a", "b", "c")]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = files.read(f"{home}/log").decode().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in "abc" for number in range(50))
    for name in "abc":
        assert [line for line in lines if line[0] == name] == [f"{name} {number}" for number in range(50)]
