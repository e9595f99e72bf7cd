"""The names of checkpoint directories, and the file `manifest.json` that describes each.

    <root>/<unit>-<sequence>/manifest.json
    <root>/<unit>-<sequence>/part-00000, ...     the pages one after the other, cut between chunks

While it is being written the directory is `.<unit>-<sequence>.<number>.writing`.
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
    """A file of the checkpoint; bytes."""

    name: str
    length: int


class Manifest(msgspec.Struct, frozen=True):
    """`pages` are sizes in bytes with how many pages in a row have it."""

    format: int
    unit: str
    sequence: int
    parts: list[Part]
    pages: list[tuple[int, int]]

    @property
    def length(self) -> int:
        """Bytes, of all parts."""
        return sum(part.length for part in self.parts)

    def page_sizes(self) -> list[int]:
        """In bytes, page by page, as they were written."""
        return [size for size, count in self.pages for _ in range(count)]


def describe(unit: str, sequence: int, part_lengths: Sequence[int], page_sizes: Sequence[int]) -> Manifest:
    """Describe what will be written. Raises BadRequest for more pages than can be read."""
    if len(page_sizes) > checkpoint_pages_max:
        raise BadRequest(f"{len(page_sizes)} pages are too many: at most {checkpoint_pages_max}")
    parts = [Part(f"part-{number:05}", length) for number, length in enumerate(part_lengths)]
    runs = [(size, len(list(run))) for size, run in groupby(page_sizes)]
    return Manifest(_FORMAT, unit, sequence, parts, runs)


def encode(manifest: Manifest) -> bytes:
    """As JSON, which `decode` reads."""
    return msgspec.json.encode(manifest)


def decode(data: bytes, path: str) -> Manifest:
    """Raises CheckpointDamaged for what is no manifest, or not of this format."""
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
    """Raises BadRequest for names that could not be told apart again."""
    if not unit or unit.startswith(".") or "/" in unit or "\0" in unit:
        raise BadRequest(f"{unit!r} cannot be the name of a unit: not empty, without '/', and no '.' in front")
    if sequence < 0:
        raise BadRequest(f"sequence {sequence} is negative")
    return f"{unit}-{sequence}"


def sequence_of(name: str, unit: str) -> int | None:
    """Return the number of the unit's checkpoint that a directory of this name holds."""
    text = name.removeprefix(f"{unit}-")
    if text == name or not (text.isascii() and text.isdigit()) or str(int(text)) != text:
        return None
    return int(text)


def unfinished_name(unit: str, sequence: int) -> str:
    """For one attempt."""
    return f".{directory_name(unit, sequence)}.{uuid.uuid4().hex[:12]}{_WRITING}"


def is_unfinished(name: str, unit: str) -> bool:
    """Return whether a directory of this name is an attempt to write a checkpoint of the unit."""
    if not (name.startswith(".") and name.endswith(_WRITING)):
        return False
    checkpoint, _, _ = name.removeprefix(".").removesuffix(_WRITING).rpartition(".")
    return sequence_of(checkpoint, unit) is not None
