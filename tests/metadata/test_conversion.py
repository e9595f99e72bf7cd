"""A store of the release before is converted at the first start, and its copy is the way back."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.schema import IMAGE_SCHEMA
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.protocol.errors import StartupError

_BEFORE = IMAGE_SCHEMA - 1


def _grow(store: Path, *directories: str) -> list[str]:
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    for directory in directories:
        _make(metadata, parse_path(directory))
    names = [entry.name for entry in namespace.list_page(metadata.reader(), parse_path("/")).entries]
    metadata.close()
    return names


def _make(metadata: Metadata, path: NamespacePath) -> None:
    assert run_now(metadata, lambda tx: namespace.mkdirs(tx, path, "root", 0o755, 1))


def _names_in(file: Path) -> list[str]:
    """The names of the root, as SQL says."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM entry WHERE parent = 1 ORDER BY name")]


def _version(file: Path) -> int:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store as the release before has left it: without a log of ours, and without a word about one."""
    path = tmp_path / "coordinator" / "metadata.sqlite"
    path.parent.mkdir(mode=0o700)
    _grow(path, "/before")
    for beside in path.parent.glob(f"{path.name}.*"):
        beside.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM meta WHERE key IN ('log_number', 'log_chain')")
        connection.execute(f"PRAGMA user_version = {_BEFORE}")
        connection.commit()
    return path


def test_store_of_the_release_before_is_converted_and_a_copy_is_kept(store: Path) -> None:
    assert _grow(store, "/after") == ["after", "before"]
    kept = store.with_name(f"{store.name}.schema-{_BEFORE}")
    assert (_version(store), _version(kept)) == (IMAGE_SCHEMA, _BEFORE)
    assert _names_in(kept) == ["before"]


def test_copy_that_is_put_back_is_not_mixed_with_the_log_of_the_time_after(store: Path) -> None:
    _grow(store, "/after")
    kept = store.with_name(f"{store.name}.schema-{_BEFORE}")
    for ending in (".sums", ".commits", "-wal.sums"):
        store.with_name(store.name + ending).unlink(missing_ok=True)
    kept.replace(store)
    with pytest.raises(StartupError, match=r"metadata\.sqlite\.log-0+1 .* move it away"):
        open_store(store, owner="root")
    assert _version(store) == _BEFORE and _names_in(store) == ["before"]
    for segment in store.parent.glob(f"{store.name}.log-*"):
        segment.unlink()
    assert _grow(store, "/again") == ["again", "before"]
