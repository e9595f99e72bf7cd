"""The names of checkpoint directories, and the file `manifest.json` that describes each checkpoint.

    <root>/<unit>-<sequence>/manifest.json
    <root>/<unit>-<sequence>/part-00000, ...     the pages one after the other, cut between chunks

During the write, the directory is named `.<unit>-<sequence>.<number>.writing`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import BadRequest, CheckpointDamaged
from peacefs.protocol.limits import MIB

# A terabyte in pages of 64 KiB.
checkpoint_pages_max: Final = 16 * MIB


MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_WRITING: Final = ".writing"


class Part(msgspec.Struct, frozen=True):
    """A file of the checkpoint, and its length in bytes."""

    name: str
    length: int


class Manifest(msgspec.Struct, frozen=True):
    """The contents of `manifest.json`. `pages` are run-length encoded: (size in bytes, number of pages)."""

    format: int
    unit: str
    sequence: int
    parts: list[Part]
    pages: list[tuple[int, int]]

    @property
    def length(self) -> int:
        """The total length of all parts in bytes."""
        return sum(part.length for part in self.parts)

    def page_sizes(self) -> list[int]:
        """Return the size of each page in bytes, in the order in which they were written."""
        return [size for size, count in self.pages for _ in range(count)]


def describe(unit: str, sequence: int, part_lengths: Sequence[int], page_sizes: Sequence[int]) -> Manifest:
    """Describe a checkpoint to be written. Raises BadRequest if it has more pages than can be read back."""
    if len(page_sizes) > checkpoint_pages_max:
        raise BadRequest(f"{len(page_sizes)} pages are too many: at most {checkpoint_pages_max}")
    parts = [Part(f"part-{number:05}", length) for number, length in enumerate(part_lengths)]
    runs = [(size, len(list(run))) for size, run in groupby(page_sizes)]
    return Manifest(_FORMAT, unit, sequence, parts, runs)


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode(data: bytes, path: str) -> Manifest:
    """Parse a manifest. Raises CheckpointDamaged if this is no manifest, or of another format."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except UNREADABLE as error:
        raise CheckpointDamaged(f"{path} is no manifest of a checkpoint: {error}") from None
    if manifest.format != _FORMAT:
        raise CheckpointDamaged(f"{path} is of format {manifest.format}; this version reads format {_FORMAT}")
    if sum(count for _, count in manifest.pages) > checkpoint_pages_max:
        raise CheckpointDamaged(f"{path} names more than {checkpoint_pages_max} pages")
    if any(size < 0 or count < 1 for size, count in manifest.pages) or manifest.length != sum(
        size * count for size, count in manifest.pages
    ):
        raise CheckpointDamaged(f"{path}: the pages are not as long as the parts")
    return manifest


def directory_name(unit: str, sequence: int) -> str:
    """Return the name of a checkpoint's directory. Raises BadRequest if it could not be parsed back."""
    if not unit or unit.startswith(".") or "/" in unit or "\0" in unit:
        raise BadRequest(f"{unit!r} cannot be the name of a unit: not empty, without '/', and no '.' in front")
    if sequence < 0:
        raise BadRequest(f"sequence {sequence} is negative")
    return f"{unit}-{sequence}"


def sequence_of(name: str, unit: str) -> int | None:
    """Return the sequence number in a directory name; None unless it names a checkpoint of the unit."""
    text = name.removeprefix(f"{unit}-")
    if text == name or not (text.isascii() and text.isdigit()) or str(int(text)) != text:
        return None
    return int(text)


def unfinished_name(unit: str, sequence: int) -> str:
    """Return a new directory name for one attempt."""
    return f".{directory_name(unit, sequence)}.{uuid.uuid4().hex[:12]}{_WRITING}"


def is_unfinished(name: str, unit: str) -> bool:
    """Return whether a directory name belongs to an attempt to write a checkpoint of the unit."""
    if not (name.startswith(".") and name.endswith(_WRITING)):
        return False
    checkpoint, _, _ = name.removeprefix(".").removesuffix(_WRITING).rpartition(".")
    return sequence_of(checkpoint, unit) is not None
