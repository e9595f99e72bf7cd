"""Roll back a checkpoint in a local directory: cut back a copy, then exchange it with the original in one step.

The kernel exchanges the names of the two directories (Linux's renameat2). So if the command is killed, the root
holds either the old content or the new one, nothing in between. Everything in the copy is synced before the
exchange. After it, the old content gets a name that says what it is.

A local file system knows no runs. A live query is noticed only by its writes.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from peacefs.protocol.errors import BadRequest
from peacefs.runtime.disk_files import exchange_names, sync_directory

from .catalogue import read_layout
from .cut import Cut
from .layout import CheckpointLayout
from .left_over import staging_name
from .rollback import (
    Rollback,
    RollbackRequest,
    alive,
    check_batch,
    check_cut,
    lengths,
    record_rollback,
    refuse_live,
)
from .tree import LocalTree

_log = logging.getLogger("peacefs.checkpoints")
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)


def roll_back_locally(request: RollbackRequest) -> Rollback:
    """Roll back. Raises BadRequest if the batch is gone or not good, or if the checkpoint's query is alive."""
    if request.sink is not None:
        raise BadRequest(
            "the checkpoint and the log of a file sink are two directories, which cannot change in one step here"
        )
    tree = LocalTree()
    request = replace(request, root=Path(request.root).resolve().as_posix())
    layout = read_layout(tree, request.root)
    refuse_live(layout, request.idle_s)
    latest = max(layout.commits, default=-1)
    cut = check_batch(tree, layout, request, latest)
    root, staging = Path(request.root), Path(staging_name(f"{request.root}.rollback-to-{request.batch}"))
    try:
        _prepare(tree, layout, request, cut, staging)
    except OSError as fault:
        discard(staging)
        raise BadRequest(f"{root} cannot be copied, or {alive(str(root))}: {fault}") from None
    except BaseException:
        discard(staging)
        raise
    exchange_locally(root, staging)
    kept = f"{root}.before-rollback-to-{request.batch}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    tree.move(str(staging), kept)
    sync_directory(str(root.parent))
    return Rollback(str(root), latest, request.batch, [kept], len(cut.remove), cut.plan, cut.anew)


def _prepare(tree: LocalTree, layout: CheckpointLayout, request: RollbackRequest, cut: Cut, staging: Path) -> None:
    shutil.copytree(request.root, staging, symlinks=True)
    if lengths(read_layout(tree, str(staging))) != lengths(layout):
        raise BadRequest(alive(request.root))
    for path in cut.remove:
        (staging / path).unlink()
    check_cut(tree, str(staging), request)
    record_rollback(tree, str(staging), layout, request)
    settle(Path(request.root), staging)
    if read_layout(tree, request.root).by_path != layout.by_path:
        raise BadRequest(alive(request.root))


def settle(root: Path, staging: Path) -> None:
    """Give each file in a copy its original's owner, new ones the root's, and sync it to disk. Raises OSError."""
    for directory, _, names in os.walk(staging, topdown=False):
        for path in (*(Path(directory, name) for name in names), Path(directory)):
            original = root / path.relative_to(staging)
            before, now = (original if os.path.lexists(original) else root).lstat(), path.lstat()
            if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
                os.chown(path, before.st_uid, before.st_gid, follow_symlinks=False)
            if not path.is_symlink():
                _sync(path)
    sync_directory(str(staging.parent))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange_locally(root: Path, staging: Path) -> None:
    """Exchange the names. Discard `staging` only if the exchange fails: afterwards it holds the old content."""
    try:
        exchange_names(str(root), str(staging))
    except OSError as fault:
        discard(staging)
        if fault.errno in _UNABLE:
            raise BadRequest(f"the file system of {root} cannot exchange two names in one step: {fault}") from None
        raise BadRequest(f"{root} cannot be exchanged for what was cut back: {fault}") from None
    sync_directory(str(root.parent))


def discard(staging: Path) -> None:
    """Delete a working copy. Raises nothing."""
    try:
        shutil.rmtree(staging)
    except FileNotFoundError:
        return
    except OSError as fault:
        _log.warning("%s is left over and can be deleted: %s", staging, fault)
