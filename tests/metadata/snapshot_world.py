"""A tree with snapshots: its visible contents, changes of all its parts, and the rows kept for snapshots."""

from __future__ import annotations

from peacefs.coordinator.metadata.model import InodeKind
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

from .conftest import Space

Shown = dict[str, tuple[int, int, int, tuple[int, ...]]]


def tree(space: Space, top: str) -> Shown:
    """Return by path below `top`, now or in a snapshot: (mode, time of modification, length, chunks)."""
    found: Shown = {}
    for entry in space.list_page(top).entries:
        path = f"{top}/{entry.name}"
        chunks = tuple(chunk for chunk, _ in space.pieces(path)) if entry.kind is InodeKind.FILE else ()
        found[entry.name] = (entry.permission, entry.modified_ms, entry.length, chunks)
        if entry.kind is InodeKind.DIRECTORY:
            found |= {f"{entry.name}/{name}": shown for name, shown in tree(space, path).items()}
    return found


def set_mode(space: Space, path: str, mode: int) -> None:
    space.commit(lambda tx: namespace.set_permission(tx, parse_path(path), mode))


def change_everything(space: Space) -> None:
    space.create("/d/replaced", 8, overwrite=True)
    space.rename("/d/moved", "/elsewhere")
    space.delete("/d/deleted")
    set_mode(space, "/d/chmod", 0o600)
    set_mode(space, "/d/chmod", 0o640)
    space.rename("/d/tree", "/out")
    space.delete("/out")
    space.reclaim(limit=3)


def retired(space: Space) -> int:
    """Return the number of rows kept for snapshots."""
    counts = [
        space.sql(f"SELECT count(*) FROM {table} WHERE to_tx < 9223372036854775807")[0][0]
        for table in ("inode", "entry", "reference")
    ]
    assert counts == [
        space.sql(f"SELECT count(*) FROM {table} WHERE kept_for IS NOT NULL")[0][0]
        for table in ("inode", "entry", "reference")
    ]
    return sum(counts)
