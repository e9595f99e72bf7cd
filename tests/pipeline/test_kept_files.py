"""Files that are kept open for the next reader: few, not for long, and never closed under somebody who reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peacefs.protocol.runtime.disk_files import DiskFile
from peacefs.protocol.runtime.kept_files import KeptFiles


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


def _opened(directory: Path, name: str) -> tuple[str, DiskFile]:
    path = directory / name
    path.write_bytes(name.encode())
    return str(path), DiskFile(os.open(path, os.O_RDONLY))


def _is_open(file: DiskFile) -> bool:
    try:
        os.fstat(file.descriptor)
    except OSError:
        return False
    return True


def test_kept_file_is_given_to_the_next_who_opens_it(kept: KeptFiles, tmp_path: Path) -> None:
    path, file = _opened(tmp_path, "a")
    assert kept.open(path) is None
    kept.keep(path, file)
    assert kept.release(file), "nobody else need close it"
    assert _is_open(file)
    assert kept.open(path) is file
    kept.close()


def test_kept_file_is_closed_when_it_is_old(kept: KeptFiles, clock: Clock, tmp_path: Path) -> None:
    path, file = _opened(tmp_path, "a")
    kept.keep(path, file)
    kept.release(file)
    clock.now_s = 9.9
    kept.forget_old()
    assert _is_open(file)
    clock.now_s = 10.0
    kept.forget_old()
    assert not _is_open(file)
    assert kept.open(path) is None


def test_kept_file_that_is_old_or_given_up_stays_open_for_those_who_read_it(
    kept: KeptFiles, clock: Clock, tmp_path: Path
) -> None:
    path, file = _opened(tmp_path, "a")
    kept.keep(path, file)
    assert kept.open(path) is file
    clock.now_s = 11.0
    kept.forget_old()
    kept.close()
    assert kept.open(path) is None, "who comes now opens it anew"
    assert kept.release(file)
    assert _is_open(file) and kept.is_kept(file), "one more still reads"
    assert kept.release(file)
    assert not _is_open(file) and not kept.is_kept(file)


def test_kept_files_are_no_more_than_there_may_be_and_each_path_once(kept: KeptFiles, tmp_path: Path) -> None:
    files = [_opened(tmp_path, name) for name in "abc"]
    for path, file in files:
        kept.keep(path, file)
    again = _opened(tmp_path, "a")
    kept.keep(*again)
    for file in (files[2][1], again[1]):
        assert not kept.is_kept(file)
        assert not kept.release(file), "its user closes it"
        os.close(file.descriptor)
    for _path, file in files[:2]:
        assert kept.release(file)
    kept.close()
    assert not any(_is_open(file) for _path, file in files)
