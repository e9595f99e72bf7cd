"""Copy a checkpoint to another root, to an archive, or from one. The result appears whole or not at all.

Files that contain the checkpoint's own path are rewritten (`moving`), so the copy does not depend on the original.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

from peacefs.client.command_line.progress import TransferProgress
from peacefs.protocol.errors import BadRequest, FileAlreadyExists, FileNotFound
from peacefs.protocol.limits import packet_bytes

from .ancestry import StepKind, record_step
from .archive import ArchiveReader, ArchiveWriter
from .catalogue import latest_of, read_layout
from .layout import is_root
from .left_over import staged
from .moving import files_that_name_their_place, moved
from .tree import Amount, Workspace

# Files that are unpacked in parallel.
checkpoint_import_threads: Final = 16


def fork(tree: Workspace, source: str, target: str) -> Amount:
    """Copy a checkpoint to a new path outside any checkpoint.

    Raises FileAlreadyExists, FileNotFound; BadRequest if `source` is no checkpoint.
    """
    if not is_root(entry.name for entry in tree.entries(source)):
        raise BadRequest(f"{source} is no checkpoint of Spark's")
    _refuse_target(tree, source, target)
    source_id = tree.identity(source)
    with staged(tree, target) as staging:
        copied = tree.copy(source, staging)
        _settle(tree, staging, tree.uri(target), tree.uri(source))
        query, batch = latest_of(tree, staging)
        record_step(tree, staging, StepKind.FORK, source, source_id=source_id, query=query, batch=batch)
        tree.move(staging, target)
    return copied


def export(
    tree: Workspace, source: str, archive: Path, progress: TransferProgress, *, moment: bool, force: bool = False
) -> Amount:
    """Write a checkpoint to an archive, which appears once it is whole.

    With `moment`, archive a snapshot copy, so the query may run meanwhile. Raises FileAlreadyExists, FileNotFound;
    BadRequest if `source` is no checkpoint, CheckpointDamaged if a file cannot be read.
    """
    if archive.is_dir():
        raise BadRequest(f"{archive} is a directory: name the archive itself")
    if not archive.parent.is_dir():
        raise BadRequest(f"there is no directory {archive.parent} for the archive")
    if archive.exists() and not force:
        raise FileAlreadyExists(f"{archive} exists: --force replaces it")
    read_layout(tree, source)
    with contextlib.ExitStack() as stack:
        if moment:
            staging = stack.enter_context(staged(tree, source))
            tree.copy(source, staging)
        else:
            staging = source
        layout = read_layout(tree, staging)
        progress.expect(layout.bytes)
        with ArchiveWriter(archive) as writer:
            for path, entry in sorted(layout.by_path.items()):
                progress.name(posixpath.basename(path))
                with tree.open(entry.path) as data:
                    writer.add(path, _watched(data, progress.advance))
            writer.finish()
    return Amount(len(layout.by_path), layout.bytes)


def restore(archive: Path, tree: Workspace, target: str, progress: TransferProgress) -> Amount:
    """Restore a checkpoint from an archive to a new path.

    Raises FileAlreadyExists; CheckpointDamaged if the archive is not whole, BadRequest if it is none.
    """
    _refuse_target(tree, None, target)
    with ArchiveReader(archive) as reader, staged(tree, target) as staging:
        progress.expect(reader.bytes)
        _unpack(reader, tree, staging, progress)
        _settle(tree, staging, tree.uri(target), None)
        query, batch = latest_of(tree, staging)
        record_step(tree, staging, StepKind.IMPORT, archive.name, query=query, batch=batch)
        tree.move(staging, target)
        return Amount(len(reader.paths), reader.bytes)


def _unpack(reader: ArchiveReader, tree: Workspace, staging: str, progress: TransferProgress) -> None:
    """Unpack several files in parallel: most are small, and each waits for its own commit."""

    def unpack(path: str) -> None:
        progress.name(posixpath.basename(path))
        with _created(tree, f"{staging}/{path}") as file:
            for piece in reader.read(path):
                file.write(piece)
                progress.advance(len(piece))

    pool = ThreadPoolExecutor(checkpoint_import_threads)
    try:
        for unpacked in [pool.submit(unpack, path) for path in reader.paths]:
            unpacked.result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _created(tree: Workspace, path: str) -> Iterator[BinaryIO]:
    """Yield a new file. If writing fails, nothing is published."""
    file = tree.create(path)
    try:
        yield file
    except BaseException:
        discard = getattr(file, "discard", file.close)
        discard()
        raise
    file.close()


def _refuse_target(tree: Workspace, source: str | None, target: str) -> None:
    if tree.exists(target):
        raise FileAlreadyExists(f"{target} exists: a checkpoint is never put over another one")
    if source is not None and f"{target}/".startswith(f"{source}/"):
        raise BadRequest(f"{target} lies below {source}")
    above = posixpath.dirname(target)
    while above not in ("", "/"):
        with contextlib.suppress(FileNotFound):
            if is_root(entry.name for entry in tree.entries(above)):
                raise BadRequest(f"{target} lies inside the checkpoint {above}")
        above = posixpath.dirname(above)


def _settle(tree: Workspace, staging: str, target: str, source: str | None) -> None:
    """Make a staged checkpoint name its future path. Both `target` and `source` are URIs."""
    for path in files_that_name_their_place(tree, staging):
        directory, name = posixpath.split(path)
        for checksum in (f"{path}.crc", f"{directory}/.{name}.crc"):
            tree.remove(checksum)
        with tree.open(path) as file:
            data = file.read()
        tree.replace(path, moved(data, target, source))


def _watched(data: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    while piece := data.read(packet_bytes):
        yield piece
        advance(len(piece))
