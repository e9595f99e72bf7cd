"""Steps of a program on files, with a file system's answers. The judge is a local file system.

Knows nothing of peacefs.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

FILES = ("a", "b", "d/x", "d/y", "e/x")
DIRECTORIES = ("d", "e", "g")
SLOTS = 4
_FLAGS = (
    os.O_RDONLY,
    os.O_RDWR,
    os.O_WRONLY | os.O_CREAT,
    os.O_RDWR | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    os.O_WRONLY | os.O_TRUNC,
    os.O_WRONLY | os.O_APPEND | os.O_CREAT,
)
Step = tuple[object, ...]


def random_steps(seed: int, count: int, sizes: tuple[int, ...] = (0, 1, 100, 5000, 70_000)) -> Iterator[Step]:
    """Yield steps on few names, so that files are opened, replaced, moved and deleted concurrently."""
    draw = random.Random(seed)
    for number in range(count):
        slot, file, other = draw.randrange(SLOTS), draw.choice(FILES), draw.choice(FILES)
        place, size = draw.choice(sizes) + draw.randrange(3), draw.choice(sizes)
        yield draw.choices(
            (
                ("open", slot, file, draw.choice(_FLAGS), draw.choice((0o644, 0o600, 0o755))),
                ("pwrite", slot, place, size, number),
                ("write", slot, size, number),
                ("pread", slot, place, size),
                ("read", slot, size),
                ("ftruncate", slot, place),
                ("fsync", slot),
                ("fstat", slot),
                ("close", slot),
                ("truncate", file, place),
                ("rename", file, other),
                ("rename", draw.choice(("d", "e")), draw.choice(("d", "e"))),
                ("unlink", file),
                ("mkdir", draw.choice(DIRECTORIES)),
                ("rmdir", "g"),
                ("stat", draw.choice((*FILES, *DIRECTORIES, "a/z", "none"))),
                ("chmod", file, draw.choice((0o644, 0o640, 0o700))),
                ("utime", file, draw.randrange(10**9)),
                ("list", draw.choice((".", "d", "e"))),
                ("whole", file),
            ),
            (8, 8, 8, 6, 3, 3, 3, 3, 5, 2, 3, 1, 2, 2, 1, 4, 1, 1, 2, 4),
        )[0]


class Player:
    """Plays steps in a directory. An answer is a value, or the name of an error."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[int, int] = {}
        self._steps: dict[str, Callable[..., object]] = {
            "open": self._open_file,
            "pwrite": self._pwrite,
            "write": self._write,
            "pread": self._pread,
            "read": self._read,
            "ftruncate": self._ftruncate,
            "fsync": self._fsync,
            "fstat": self._fstat,
            "close": self._close,
            "truncate": self._truncate,
            "rename": self._rename,
            "unlink": self._unlink,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
            "stat": self._stat,
            "chmod": self._chmod,
            "utime": self._utime,
            "list": self._list,
            "whole": self._whole,
        }

    def play(self, step: Step) -> object:
        name, *arguments = step
        try:
            return self._steps[str(name)](*arguments)
        except OSError as error:
            return os.strerror(error.errno or 0)

    def close(self) -> None:
        for slot in list(self._open):
            self._close(slot)

    def tree(self) -> dict[str, bytes | None]:
        """Return the contents of all files; None for directories."""
        found: dict[str, bytes | None] = {}
        for path in sorted(self._root.rglob("*")):
            found[str(path.relative_to(self._root))] = None if path.is_dir() else path.read_bytes()
        return found

    def _path(self, name: str) -> Path:
        return self._root / name

    def _open_file(self, slot: int, name: str, flags: int, mode: int) -> None:
        self._close(slot)
        self._open[slot] = os.open(self._path(name), flags, mode)

    def _descriptor(self, slot: int) -> int:
        # No process has this descriptor, so that a slot without an open file gives EBADF.
        return self._open.get(slot, 1 << 30)

    def _close(self, slot: int) -> None:
        if slot in self._open:
            os.close(self._open.pop(slot))

    def _pwrite(self, slot: int, offset: int, size: int, number: int) -> int:
        return os.pwrite(self._descriptor(slot), _data(number, size), offset)

    def _write(self, slot: int, size: int, number: int) -> int:
        return os.write(self._descriptor(slot), _data(number, size))

    def _pread(self, slot: int, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor(slot), size, offset)

    def _read(self, slot: int, size: int) -> bytes:
        return os.read(self._descriptor(slot), size)

    def _ftruncate(self, slot: int, length: int) -> None:
        os.ftruncate(self._descriptor(slot), length)

    def _fsync(self, slot: int) -> None:
        os.fsync(self._descriptor(slot))

    def _fstat(self, slot: int) -> int:
        return os.fstat(self._descriptor(slot)).st_size

    def _truncate(self, name: str, length: int) -> None:
        os.truncate(self._path(name), length)

    def _rename(self, source: str, target: str) -> None:
        self._path(source).rename(self._path(target))

    def _unlink(self, name: str) -> None:
        self._path(name).unlink()

    def _mkdir(self, name: str) -> None:
        self._path(name).mkdir()

    def _rmdir(self, name: str) -> None:
        self._path(name).rmdir()

    def _stat(self, name: str) -> tuple[int, int]:
        found = self._path(name).stat()
        # The length of a directory depends on the file system.
        return found.st_mode, found.st_size if stat.S_ISREG(found.st_mode) else 0

    def _chmod(self, name: str, mode: int) -> None:
        self._path(name).chmod(mode)

    def _utime(self, name: str, seconds: int) -> float:
        os.utime(self._path(name), (seconds, seconds))
        return self._path(name).stat().st_mtime

    def _list(self, name: str) -> list[str]:
        return sorted(each.name for each in self._path(name).iterdir() if not each.name.startswith(".fuse_hidden"))

    def _whole(self, name: str) -> bytes:
        return self._path(name).read_bytes()


def _data(number: int, size: int) -> bytes:
    pattern = bytes((number + at) % 251 for at in range(251))
    return (pattern * (size // 251 + 1))[:size]
