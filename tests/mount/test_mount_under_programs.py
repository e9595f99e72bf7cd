"""Ordinary programs on a mount: copies, archives, git, SQLite, fio. The programs' own checks are the judge."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster
_AT_2001 = 1_000_000_000


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program. Skip the test if it is not installed."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    environment = os.environ | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{
            f"GIT_{who}_{what}": "tester@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a local tree with various modes and times."""
    root = tmp_path / "tree"
    for number in range(12):
        file = root / f"d{number % 3}" / f"file-{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([number]) * (1000 * number**2))
        file.chmod(0o640 if number % 2 else 0o755)
        os.utime(file, (_AT_2001 + number, _AT_2001 + number))
    (root / "empty").mkdir()
    return root


def facts(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time and content of all files."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(root)): (path.stat().st_mode, int(path.stat().st_mtime), path.read_bytes())
        for path in files
    }


def test_cp_keeps_modes_and_times(here: Path, tree: Path) -> None:
    run("cp", "-a", tree, here / "copy")
    assert facts(here / "copy") == facts(tree)
    assert (here / "copy" / "empty").is_dir()
    run("cp", "-a", here / "copy", tree.with_name("back"))
    assert facts(tree.with_name("back")) == facts(tree)


def test_rsync_has_nothing_left_to_do(here: Path, tree: Path) -> None:
    run("rsync", "-a", f"{tree}/", here / "copy")
    assert facts(here / "copy") == facts(tree)
    itemized = run("rsync", "-a", "--checksum", "--itemize-changes", "--omit-dir-times", f"{tree}/", here / "copy")
    assert [line for line in itemized.splitlines() if line.startswith((">", "<", "c"))] == []
    (tree / "d1" / "file-1").write_bytes(b"changed")
    run("rsync", "-a", "--inplace", "--no-whole-file", f"{tree}/", here / "copy")
    assert facts(here / "copy") == facts(tree)


def test_tar_is_written_and_unpacked(here: Path, tree: Path) -> None:
    run("tar", "cf", here / "tree.tar", "-C", tree, ".")
    with tarfile.open(here / "tree.tar") as archive:
        assert len(archive.getmembers()) == 17
    (here / "unpacked").mkdir()
    run("tar", "xf", here / "tree.tar", "-C", here / "unpacked")
    assert facts(here / "unpacked") == facts(tree)


def test_git_clones_commits_and_finds_nothing_wrong(here: Path, tree: Path) -> None:
    run("git", "init", "-q", tree)
    run("git", "-C", tree, "add", "-A")
    run("git", "-C", tree, "commit", "-q", "-m", "first")
    run("git", "clone", "-q", f"file://{tree}", here / "clone")
    assert run("git", "-C", here / "clone", "status", "--porcelain") == ""
    (here / "clone" / "new").write_text("new\n")
    assert run("git", "-C", here / "clone", "status", "--porcelain") == "?? new\n"
    run("git", "-C", here / "clone", "add", "-A")
    run("git", "-C", here / "clone", "commit", "-q", "-m", "second")
    run("git", "-C", here / "clone", "gc", "-q")
    run("git", "-C", here / "clone", "fsck", "--strict")
    assert run("git", "-C", here / "clone", "log", "--format=%s") == "second\nfirst\n"


def test_sqlite_works_staged_and_rolls_back(here: Path, home: str, files: PeaceFileSystem, tmp_path: Path) -> None:
    with sqlite3.connect(here / "rows.db") as database:
        database.execute("create table rows (id integer primary key, text)")
        database.executemany("insert into rows values (?, ?)", [(number, "x" * 100) for number in range(2000)])
    database.execute("begin")
    database.execute("delete from rows")
    database.rollback()
    # Use another connection of this machine, which waits for the lock.
    with sqlite3.connect(here / "rows.db") as other:
        other.execute("update rows set text = 'y' where id % 2 = 0")
    database.close()
    other.close()
    (tmp_path / "rows.db").write_bytes(files.read(f"{home}/rows.db"))
    published = sqlite3.connect(tmp_path / "rows.db")
    assert published.execute("pragma integrity_check").fetchall() == [("ok",)]
    counted = "select count(*), sum(text = 'y') from rows"
    assert published.execute(counted).fetchall() == [(2000, 1000)]
    published.close()


@pytest.mark.parametrize("way", ["write", "randwrite", "randrw"])
def test_fio_reads_what_it_has_written(here: Path, tmp_path: Path, way: str) -> None:
    run(
        "fio",
        "--name=verified",
        f"--directory={here}",
        f"--rw={way}",
        "--bs=64k",
        "--size=6m",
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_fatal=1",
        "--fsync=20",
        # fio leaves the state of its verification in its working directory.
        cwd=tmp_path,
    )


def test_df_shows_the_space_of_the_cluster(here: Path, files: PeaceFileSystem) -> None:
    found, space = os.statvfs(here), files.space()
    # Other users of these disks change them meanwhile.
    assert found.f_blocks * found.f_frsize == pytest.approx(space.capacity, rel=0.1)
    assert 0 < found.f_bavail <= found.f_blocks


def test_attributes_keep_their_values(here: Path, home: str, files: PeaceFileSystem) -> None:
    (here / "file").write_bytes(b"x")
    os.setxattr(here / "file", "user.origin", b"sensors")
    with pytest.raises(FileExistsError):
        os.setxattr(here / "file", "user.origin", b"other", os.XATTR_CREATE)
    with pytest.raises(OSError, match="No data"):
        os.setxattr(here / "file", "user.none", b"other", os.XATTR_REPLACE)
    assert files.xattrs.get(f"{home}/file") == {"user.origin": b"sensors"}
    (here / "file").write_bytes(b"rewritten")
    assert os.getxattr(here / "file", "user.origin") == b"sensors"
    assert os.listxattr(here / "file") == ["user.origin"]
    os.removexattr(here / "file", "user.origin")
    with pytest.raises(OSError, match="No data"):
        os.getxattr(here / "file", "user.origin")


def test_what_there_is_not_is_refused_with_its_number(here: Path) -> None:
    with pytest.raises(PermissionError):
        (here / "link").symlink_to("file")
    with pytest.raises(PermissionError):
        os.mkfifo(here / "pipe")
    with pytest.raises(OSError, match="name too long"):
        (here / ("x" * 256)).touch()
    with pytest.raises(OSError, match="multibyte"):
        os.close(os.open(bytes(here) + b"/\xff", os.O_CREAT | os.O_WRONLY))


def test_directory_of_another_user_cannot_be_changed(here: Path, home: str, superuser: PeaceFileSystem) -> None:
    superuser.mkdirs(f"{home}/closed", 0o755)
    superuser.write(f"{home}/closed/file", b"x")
    closed = here / "closed"
    changes: tuple[Callable[[], object], ...] = (
        (closed / "new").touch,
        (closed / "new").mkdir,
        (closed / "file").unlink,
        lambda: (closed / "file").write_bytes(b"y"),
        lambda: (closed / "file").rename(here / "file"),
    )
    for change in changes:
        with pytest.raises(PermissionError):
            change()
    with (closed / "file").open("rb"), pytest.raises(PermissionError):
        os.open(closed / "file", os.O_WRONLY)
    assert {entry.name for entry in superuser.list(f"{home}/closed")} == {"file"}
    # A refused deletion leaves an open file as it is.
    superuser.set_permission(f"{home}/closed/file", 0o666)
    with (closed / "file").open("ab") as log:
        with pytest.raises(PermissionError):
            (closed / "file").unlink()
        log.write(b"y")
    assert superuser.read(f"{home}/closed/file") == b"xy"
