"""Exchanging names: all pairs in one commit, or none."""

from __future__ import annotations

import pytest

from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.rename import exchange
from peacefs.protocol.errors import FileNotFound, IllegalChange, PeacefsError, SnapshotRefused

from .conftest import Space


def trade(space: Space, *pairs: tuple[str, str]) -> None:
    parsed = [(parse_path(one), parse_path(other)) for one, other in pairs]
    space.commit(lambda tx: exchange(tx, parsed, space.now_ms))


@pytest.fixture
def traded(space: Space) -> Space:
    for path in ("/a/old/x/f", "/a/new/g", "/a/file", "/b/old", "/b/new/h"):
        space.create(path, 10)
    return space


def found(space: Space, path: str) -> bool:
    try:
        space.status(path)
    except FileNotFound:
        return False
    return True


def test_trees_and_files_trade_places(traded: Space) -> None:
    trade(traded, ("/a/old", "/a/new"), ("/b/old", "/b/new"))
    assert found(traded, "/a/old/g") and found(traded, "/a/new/x/f")
    assert found(traded, "/b/old/h") and traded.status("/b/new").length == 10
    trade(traded, ("/a/old", "/a/new"))
    assert found(traded, "/a/old/x/f") and not found(traded, "/a/old/g")


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        ("/b/old", "/b/none", FileNotFound),
        ("/b/none", "/b/old", FileNotFound),
        ("/a/old", "/b/old", IllegalChange),
        ("/a", "/a/old", IllegalChange),
        ("/b/old", "/b/old", IllegalChange),
        ("/", "/a", IllegalChange),
    ],
)
def test_a_pair_that_cannot_be_undoes_those_before_it(
    traded: Space, one: str, other: str, error: type[PeacefsError]
) -> None:
    with pytest.raises(error):
        trade(traded, ("/a/old", "/a/new"), (one, other))
    assert found(traded, "/a/old/x/f") and found(traded, "/a/new/g")


def test_a_directory_with_snapshots_keeps_its_place(traded: Space) -> None:
    traded.allow_snapshots("/a/old")
    traded.take_snapshot("/a/old", "s")
    with pytest.raises(SnapshotRefused):
        trade(traded, ("/a/new", "/a/old"))


def test_a_snapshot_above_shows_what_was_before(traded: Space) -> None:
    traded.allow_snapshots("/a")
    traded.take_snapshot("/a", "s")
    trade(traded, ("/a/old", "/a/new"))
    place = traded.locate("/a/.snapshot/s/old/x/f")
    assert place.reader is not traded.reader
    assert found(traded, "/a/old/g")
