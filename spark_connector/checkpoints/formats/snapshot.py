"""Parse a RocksDB snapshot: a zip that names its SST files, which lie beside it and may be shared with others."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import msgspec

from peacefs.protocol.errors import CheckpointDamaged

_CONTENTS = "metadata"
_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    OverflowError,
    ValueError,
    KeyError,
)


class SnapshotFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file of the database. Its name in the checkpoint is unique, its local name is not."""

    local_file_name: str
    dfs_sst_file_name: str
    size_bytes: int


class StateSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """RocksDB's state at a version: its SST files, and the number of keys."""

    sst_files: list[SnapshotFile] = []
    num_keys: int = 0


def parse_snapshot(data: bytes) -> StateSnapshot:
    """Parse a snapshot, verifying every member's CRC. Raises CheckpointDamaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except _FAULTS as fault:
        raise CheckpointDamaged(f"the archive is damaged: {fault}") from None
    if _CONTENTS not in members:
        raise CheckpointDamaged(f"the archive lacks {_CONTENTS}")
    _, _, text = members[_CONTENTS].partition(b"\n")
    try:
        return msgspec.json.decode(text, type=StateSnapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointDamaged(f"its {_CONTENTS} cannot be read: {error}") from None
