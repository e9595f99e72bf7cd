"""Quotas of names and bytes: changes that would exceed one are refused, and recorded usage stays right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peacefs.coordinator.metadata.model import NamespaceUsage, Quota, RenameMode
from peacefs.coordinator.metadata.sqlite.check import check_tables
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import (
    BadRequest,
    BytesQuotaExceeded,
    FileNotFound,
    NamesQuotaExceeded,
    PathIsNotDirectory,
)
from peacefs.protocol.new_file import NewFile

from .conftest import Space

Change = tuple[Callable[[Space], Any], tuple[int, int]]


def check(space: Space) -> None:
    assert check_tables(space.metadata.imaged(), lambda *_: None).problems == []


def used(space: Space, path: str) -> tuple[int, int]:
    """Return the recorded usage: names and bytes."""
    quota = space.quota(path)
    assert quota is not None
    return quota.used


def set_replication(space: Space, path: str, replication: int) -> None:
    space.commit(lambda tx: namespace.set_replication(tx, parse_path(path), replication))


@pytest.fixture(name="filled")
def _filled(space: Space) -> Space:
    """Make /q/d/f of 100 bytes and /q/g of 50, two replicas of each: 4 names and 300 bytes."""
    space.create("/q/d/f", 60, 40)
    space.create("/q/g", 50)
    space.create("/outside/d/h", 30)
    space.create("/outside/i", 7)
    return space


def test_a_directory_that_gets_a_quota_is_counted(filled: Space) -> None:
    filled.set_quota("/q", names=10, space=1000)
    assert filled.quota("/q") == Quota(10, 1000, NamespaceUsage(4, 300))
    filled.set_quota("/q", space=-1)
    assert filled.quota("/q") == Quota(10, None, NamespaceUsage(4, 300))
    filled.set_quota("/q", names=-1)
    assert filled.quota("/q") is None
    assert filled.sql("SELECT * FROM quota") == []
    filled.set_quota("/", space=5)
    assert filled.quota("/") == Quota(None, 5, NamespaceUsage(9, 374)), "it may hold more already"


#: Each change, and the usage of /q after it.
MORE: dict[str, Change] = {
    "mkdirs": (lambda space: space.mkdirs("/q/a/b"), (6, 300)),
    "create": (lambda space: space.create("/q/a/b", 5, 6), (6, 322)),
    "create below": (lambda space: space.create("/q/d/b", 5), (5, 310)),
    "overwrite": (lambda space: space.create("/q/g", 90, overwrite=True), (4, 380)),
    "append": (lambda space: space.append("/q/d/f", 10), (4, 320)),
    "replicate": (lambda space: set_replication(space, "/q/g", 5), (4, 450)),
    "rename in": (lambda space: space.rename("/outside/d", "/q/a"), (6, 360)),
    "copy in": (lambda space: space.copy("/outside", "/q/a", limit=2), (8, 374)),
    "copy within": (lambda space: space.copy("/q/d", "/q/a"), (6, 500)),
    "concat in": (lambda space: space.concat("/q/g", "/outside/i"), (4, 314)),
}
LESS: dict[str, Change] = {
    "delete a file": (lambda space: space.delete("/q/g"), (3, 200)),
    "delete a tree": (lambda space: space.delete("/q/d"), (2, 100)),
    "truncate": (lambda space: space.truncate("/q/d/f", 70), (4, 240)),
    "replicate less": (lambda space: set_replication(space, "/q/d/f", 1), (4, 200)),
    "rename within": (lambda space: space.rename("/q/d", "/q/e"), (4, 300)),
    "rename out": (lambda space: space.rename("/q/d", "/outside/e"), (2, 100)),
    "rename onto": (lambda space: space.rename("/outside/i", "/q/g", RenameMode.OVERWRITE), (4, 214)),
    "concat out": (lambda space: space.concat("/outside/i", "/q/g"), (3, 200)),
    "concat within": (lambda space: space.concat("/q/d/f", "/q/g"), (3, 300)),
    "overwrite with less": (lambda space: space.create("/q/g", 1, overwrite=True), (4, 202)),
}


@pytest.mark.parametrize("what", [*MORE, *LESS])
def test_quota_usage_follows_each_change(filled: Space, what: str) -> None:
    """This holds also for a directory above, and for one below that is moved along."""
    change, expected = (MORE | LESS)[what]
    for path in ("/q", "/", "/q/d"):
        filled.set_quota(path, names=1000, space=100_000)
    change(filled)
    assert used(filled, "/q") == expected
    check(filled)
    filled.reclaim(limit=1)
    check(filled)


@pytest.mark.parametrize("what", MORE)
def test_quota_refuses_what_would_exceed_it_and_nothing_changes(filled: Space, what: str) -> None:
    """With just enough left the change is done; with one less it is refused without effect."""
    change, (names, space) = MORE[what]
    refused = 0
    for field, before, after, error in (
        ("names", 4, names, NamesQuotaExceeded),
        ("space", 300, space, BytesQuotaExceeded),
    ):
        if after == before:
            continue
        filled.set_quota("/q", **{field: after - 1})
        shown = filled.summary("/"), used(filled, "/q")
        with pytest.raises(error):
            change(filled)
        assert (filled.summary("/"), used(filled, "/q")) == shown
        check(filled)
        filled.set_quota("/q", **{field: after})
        refused += 1
    assert refused
    change(filled)
    assert used(filled, "/q") == (names, space)


@pytest.mark.parametrize("what", LESS)
def test_quota_that_is_exceeded_allows_what_takes_no_more(filled: Space, what: str) -> None:
    change, expected = LESS[what]
    filled.set_quota("/q", names=1, space=0)
    change(filled)
    assert used(filled, "/q") == expected


def test_the_words_are_those_of_hdfs(filled: Space) -> None:
    filled.set_quota("/q", names=4, space=2048)
    with pytest.raises(NamesQuotaExceeded) as names:
        filled.mkdirs("/q/a/b")
    assert names.value.message == (
        "The NameSpace quota (directories and files) of directory /q is exceeded: quota=4 file count=6"
    )
    filled.set_quota("/q", names=-1)
    with pytest.raises(BytesQuotaExceeded) as space:
        filled.create("/q/a", 2560)
    assert space.value.message == (
        "The DiskSpace quota of /q is exceeded: quota = 2048 B = 2 KB but diskspace consumed = 5420 B = 5.29 KB"
    )


def test_quota_without_room_for_a_byte_more_places_no_chunk(filled: Space) -> None:
    filled.set_quota("/q", names=5, space=310)
    reader = filled.reader

    def create(path: str, replication: int = 2) -> None:
        file = NewFile(path=path, user="ann", replication=replication)
        namespace.check_create(reader, parse_path(path), file)

    create("/q/new")
    create("/elsewhere/a/b/c")
    with pytest.raises(NamesQuotaExceeded):
        create("/q/a/b")
    with pytest.raises(BytesQuotaExceeded):
        create("/q/new", replication=11)
    for path, room in (("/q/new", 5), ("/q/g", 55)):  # The second file is replaced, and its usage is released.
        namespace.check_allocation(reader, parse_path(path), room - 1, 2)
        with pytest.raises(BytesQuotaExceeded):
            namespace.check_allocation(reader, parse_path(path), room, 2)
    file = filled.status("/q/d/f").inode
    namespace.check_extension(reader, file, 4)
    with pytest.raises(BytesQuotaExceeded):
        namespace.check_extension(reader, file, 5)


@pytest.mark.parametrize(
    ("path", "limits", "error"),
    [
        ("/none", {"names": 1}, FileNotFound),
        ("/q/g", {"names": 1}, PathIsNotDirectory),
        ("/q", {"names": 0}, BadRequest),
        ("/q", {"names": -2}, BadRequest),
        ("/q", {"space": -2}, BadRequest),
        ("/q", {}, BadRequest),
    ],
)
def test_quotas_that_cannot_be(filled: Space, path: str, limits: dict[str, int], error: type[Exception]) -> None:
    with pytest.raises(error):
        filled.set_quota(path, **limits)
    assert filled.sql("SELECT * FROM quota") == []


def test_restoring_a_snapshot_counts_what_it_brings(filled: Space) -> None:
    filled.allow_snapshots("/q")
    filled.take_snapshot("/q", "s")
    filled.delete("/q/d")
    filled.create("/q/more", 1)
    filled.set_quota("/q", names=3)
    with pytest.raises(NamesQuotaExceeded):
        filled.restore("/q", "s", limit=1)
    assert filled.names("/q") == ["g", "more"]
    filled.set_quota("/q", names=4)
    filled.restore("/q", "s", limit=1)
    assert used(filled, "/q") == (4, 300)
    check(filled)


def test_requests_that_share_a_commit_see_each_other(filled: Space) -> None:
    """The next request cannot use what the first has used; a refused one uses nothing."""
    filled.set_quota("/q", names=6)
    outcomes = filled.metadata.commit(
        [
            lambda tx, p=path: namespace.mkdirs(tx, parse_path(p), "ann", 0o755, 1)
            for path in ("/q/a", "/q/b/c", "/q/b", "/q/z")
        ]
    )
    refused = [outcome.error is not None for outcome in outcomes]
    assert refused == [False, True, False, True]
    assert used(filled, "/q") == (6, 300)
    check(filled)


def test_the_quota_of_a_deleted_directory_is_gone_with_it(filled: Space) -> None:
    filled.set_quota("/q/d", names=10)
    filled.delete("/q")
    check(filled)
    filled.reclaim(limit=1)
    assert filled.sql("SELECT * FROM quota") == []
    filled.mkdirs("/q/d")
    assert filled.quota("/q/d") is None


def test_a_wrong_count_is_found(filled: Space) -> None:
    filled.set_quota("/q", names=10)
    filled.sql("UPDATE quota SET names = 7")
    (problem,) = check_tables(filled.metadata.imaged(), lambda *_: None).problems
    assert problem.name == "a directory with a quota holds what is kept of it"
    assert problem.examples == [f"{filled.status('/q').inode}: kept 7 names, 300 bytes"]


def test_no_write_counts_a_tree(filled: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only moves of whole trees across a quota's boundary count them."""
    filled.set_quota("/q", names=1000, space=1_000_000)

    def no_count(*_: object) -> NamespaceUsage:
        raise AssertionError("a tree was counted")

    monkeypatch.setattr("peacefs.coordinator.namespace.quotas.small_tree_usage", no_count)
    filled.mkdirs("/q/another/below")
    for what in ("overwrite", "append", "replicate", "copy in", "concat in"):
        MORE[what][0](filled)
    for what in ("truncate", "rename within"):
        LESS[what][0](filled)
    with pytest.raises(AssertionError, match="counted"):
        filled.rename("/q/e", "/elsewhere")


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    def opened() -> Space:
        metadata = open_store(tmp_path / "metadata.sqlite", owner="root")
        metadata.begin_epoch()
        return Space(metadata)

    space = opened()
    space.mkdirs("/q")
    space.set_quota("/q", names=2)
    space.create("/q/f", 5)
    space.metadata.close()
    space = opened()
    assert space.quota("/q") == Quota(2, None, NamespaceUsage(2, 10))
    with pytest.raises(NamesQuotaExceeded):
        space.create("/q/g")
    space.metadata.close()
