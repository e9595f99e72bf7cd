"""Files are kept open for the next reader: few, briefly, and never closed during a read."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from peacefs.runtime.kept_files import KeptFiles


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> KeptFiles:
    return KeptFiles(clock, files_max=2, kept_s=10.0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "a"
    path.write_bytes(b"abcdef")
    return str(path)


def open_in(directory: Path) -> int:
    """Return how many files of a directory this process has open."""
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum(link.startswith(f"{directory}/") for link in links)


def test_kept_file_is_read_by_the_next_also_without_its_name(kept: KeptFiles, path: str, tmp_path: Path) -> None:
    assert kept.read_from_memory(path, 1, 3) is None, "to open it may take long"
    assert kept.read(path, 1, 3) == b"bcd"
    Path(path).unlink()
    assert kept.read(path, 4, 100) == b"ef", "a part ends where the file does"
    assert kept.read_from_memory(path, 1, 3) in (b"bcd", None), "the latter on a file system that cannot say"
    assert kept.read_from_memory(path, 1, 100) is None, "not all of it is there"
    assert open_in(tmp_path) == 1
    kept.close()
    assert open_in(tmp_path) == 0
    with pytest.raises(FileNotFoundError):
        kept.read(path, 1, 3)


def test_kept_file_is_closed_when_it_is_old(kept: KeptFiles, clock: Clock, path: str, tmp_path: Path) -> None:
    kept.read(path, 0, 1)
    clock.now_s = 9.9
    kept.forget_old()
    assert open_in(tmp_path) == 1
    clock.now_s = 10.0
    kept.forget_old()
    assert open_in(tmp_path) == 0
    assert kept.read_from_memory(path, 0, 1) is None


def test_kept_file_that_is_given_up_stays_open_for_those_who_read_it(
    kept: KeptFiles, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.read(path, 0, 1)
    pread, begun, goes_on, data = os.pread, threading.Semaphore(0), threading.Event(), []

    def slow(descriptor: int, length: int, offset: int) -> bytes:
        begun.release()
        assert goes_on.wait(60)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", slow)
    readers = [threading.Thread(target=lambda: data.append(kept.read(path, 0, 3))) for _ in range(2)]
    for reader in readers:
        reader.start()
        assert begun.acquire(timeout=60)
    kept.close()
    assert open_in(tmp_path) == 1 and not kept
    goes_on.set()
    for reader in readers:
        reader.join(60)
    assert data == [b"abc"] * 2
    assert open_in(tmp_path) == 0


@pytest.mark.parametrize("call", ["pread", "preadv"])
def test_kept_file_whose_disk_does_not_answer_keeps_nobody_else_waiting(
    kept: KeptFiles, clock: Clock, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    kept.read(path, 0, 1)
    (tmp_path / "b").write_bytes(b"b")
    begun, answers = threading.Event(), threading.Event()

    def hang(*_arguments: object) -> int:
        begun.set()
        assert answers.wait(60)
        raise OSError("the disk has failed")

    def read() -> None:
        with contextlib.suppress(OSError):
            (kept.read if call == "pread" else kept.read_from_memory)(path, 0, 3)

    hanging = threading.Thread(target=read, daemon=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, hang)
        hanging.start()
        assert begun.wait(60)
    clock.now_s = 11.0

    def go_on() -> None:
        kept.forget_old()
        kept.read(str(tmp_path / "b"), 0, 1)

    others = threading.Thread(target=go_on, daemon=True)
    others.start()
    others.join(60)
    assert not others.is_alive()
    assert open_in(tmp_path) == 2
    answers.set()
    hanging.join(60)
    assert open_in(tmp_path) == 1, "who hung closes what was given up"
    kept.close()


def test_kept_files_are_no_more_than_there_may_be(kept: KeptFiles, tmp_path: Path) -> None:
    for name in "abca":
        (tmp_path / name).write_bytes(name.encode())
        assert kept.read(str(tmp_path / name), 0, 1) == name.encode()
    assert len(kept) == open_in(tmp_path) == 2
    kept.close()
    assert open_in(tmp_path) == 0


def test_kept_file_that_two_have_opened_at_once_is_kept_once(
    kept: KeptFiles, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, both = os.open, threading.Barrier(2, timeout=60)

    def slow(*arguments: object) -> int:
        descriptor = opens(*arguments)  # type: ignore[arg-type]
        both.wait()
        return descriptor

    monkeypatch.setattr(os, "open", slow)
    readers = [threading.Thread(target=kept.read, args=(path, 0, 1)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert len(kept) == open_in(tmp_path) == 1
    kept.close()
