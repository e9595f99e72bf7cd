"""Copies the files of a store as `kill -9` leaves them, and lets tests damage the copy.

The log is parsed here by the layout of its files, without the product's code: a head of 64 bytes, then entries
that begin with `pfL1` and their length, at multiples of eight.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

SEGMENT_HEAD_BYTES, ENTRY_HEAD_BYTES = 64, 32
_LEFT_OUT = (".lock", "-shm", "-wal.sums", ".new")
Image = dict[str, bytes]


def image_of(store: Path) -> Image:
    """Return the content of all files of a store by their endings, without empty and irrelevant ones."""
    found = {path.name.removeprefix(store.name): path for path in store.parent.glob(f"{store.name}*")}
    return {
        part: path.read_bytes()
        for part, path in found.items()
        if not part.endswith(_LEFT_OUT) and path.stat().st_size
    }


def put(image: Image, directory: Path) -> Path:
    """Make a directory with a store as the image shows it, and nothing else in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    store = directory / "metadata.sqlite"
    for part, content in image.items():
        store.with_name(store.name + part).write_bytes(content)
    return store


def segments(image: Image) -> list[str]:
    """Return the endings of the segments of the log, in order."""
    return sorted(part for part in image if part.startswith(".log-"))


def entries(segment: bytes) -> list[tuple[int, int]]:
    """Return the begin and the end of each entry of a segment, with its padding."""
    found, at = [], SEGMENT_HEAD_BYTES
    while segment[at : at + 4] == b"pfL1":
        (length,) = struct.unpack_from(">I", segment, at + 4)
        end = at + (ENTRY_HEAD_BYTES + length + 7) // 8 * 8
        found.append((at, end))
        at = end
    return found


def log_of(image: Image) -> bytes:
    """Return the content of the only segment."""
    (part,) = segments(image)
    return image[part]


def with_log(image: Image, log: bytes | None) -> Image:
    """Return a copy with another content of the last segment, or without that segment."""
    last = segments(image)[-1]
    rest = {part: content for part, content in image.items() if part != last}
    return rest if log is None else {**rest, last: log}


def flip(content: bytes, bit: int) -> bytes:
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)
