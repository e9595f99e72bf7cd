"""The files of a store as `kill -9` leaves them, put elsewhere with whatever damage a test does to them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

LOG_HEAD_BYTES, FRAME_HEAD_BYTES, _PAGE_BYTES = 32, 24, 4096
FRAME_BYTES = FRAME_HEAD_BYTES + _PAGE_BYTES
_PARTS = ("", "-wal", ".commits")
Image = dict[str, bytes]


def image_of(store: Path) -> Image:
    found = {part: store.with_name(store.name + part) for part in _PARTS}
    # SQLite leaves an empty log where it found none.
    return {part: path.read_bytes() for part, path in found.items() if path.exists() and path.stat().st_size}


def put(image: Image, directory: Path) -> Path:
    """Make a directory with a store as the image shows it, and nothing else in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    store = directory / "metadata.sqlite"
    for part, content in image.items():
        store.with_name(store.name + part).write_bytes(content)
    return store


def frames(log: bytes) -> list[tuple[int, bool]]:
    """Return where the frames of the log's present round begin, and whether they end commits."""
    salts, found, at = log[16:24], [], LOG_HEAD_BYTES
    while log[at + 8 : at + 16] == salts:
        found.append((at, struct.unpack_from(">I", log, at + 4)[0] != 0))
        at += FRAME_BYTES
    return found


def with_log(image: Image, log: bytes) -> Image:
    return {**image, "-wal": log}


def flip(content: bytes, bit: int) -> bytes:
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)
