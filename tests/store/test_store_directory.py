"""A datanode directory has one owner, and refuses other datanodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peacefs.datanode.disks.identity import StoreDirectory
from peacefs.protocol.errors import StartupError


def test_an_empty_directory_becomes_ours_and_stays_so(tmp_path: Path) -> None:
    assert StoreDirectory.cluster_of(tmp_path) is None
    with StoreDirectory.claim(tmp_path, "c1", "dn-1") as claimed:
        assert (claimed.node, claimed.cluster, claimed.epoch_seen) == ("dn-1", "c1", 0)
    assert StoreDirectory.cluster_of(tmp_path) == "c1"
    (tmp_path / "chunks").mkdir()
    with StoreDirectory.claim(tmp_path, "c1", "dn-2") as claimed:
        assert claimed.node == "dn-1"


def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    assert StoreDirectory.cluster_of(tmp_path / "a" / "b") is None
    with StoreDirectory.claim(tmp_path / "a" / "b", "c1", "dn-1"):
        assert (tmp_path / "a" / "b" / "identity.json").exists()


@pytest.mark.parametrize("name", ["lost+found", "identity.json.new", "lock"])
@pytest.mark.evidence("half-written-files")
def test_a_fresh_file_system_and_a_claim_cut_short_count_as_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with StoreDirectory.claim(tmp_path, "c1", "dn-1") as claimed:
        assert claimed.node == "dn-1"


@pytest.mark.parametrize("name", ["photo.jpg", "chunks", "segments"])
def test_a_directory_with_other_things_in_it_is_refused_and_not_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with (
        pytest.raises(StartupError, match=r"not a peacefs datanode directory.*choose an empty one"),
        StoreDirectory.claim(tmp_path, "c1", "dn-1"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.evidence("foreign-directory")
def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with StoreDirectory.claim(tmp_path, "c1", "dn-1"):
        pass
    with (
        pytest.raises(StartupError, match="belongs to cluster c1, the coordinator is of cluster c2"),
        StoreDirectory.claim(tmp_path, "c2", "dn-1"),
    ):
        pass


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError), StoreDirectory.claim(tmp_path / "file", "c1", "dn-1"):
        pass


@pytest.mark.evidence("started-twice")
def test_two_datanodes_cannot_share_a_directory(tmp_path: Path) -> None:
    with (
        StoreDirectory.claim(tmp_path, "c1", "dn-1"),
        pytest.raises(StartupError, match="another datanode is using"),
        StoreDirectory.claim(tmp_path, "c1", "dn-2"),
    ):
        pass
    with StoreDirectory.claim(tmp_path, "c1", "dn-2") as claimed:
        assert claimed.node == "dn-1"


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from peacefs.datanode.disks.identity import StoreDirectory\n"
        "with StoreDirectory.claim(pathlib.Path(sys.argv[1]), 'c1', 'dn-1'):\n"
        "    os._exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 7
    with StoreDirectory.claim(tmp_path, "c1", "dn-2") as claimed:
        assert claimed.node == "dn-1"


def test_the_highest_epoch_is_remembered(tmp_path: Path) -> None:
    with StoreDirectory.claim(tmp_path, "c1", "dn-1") as claimed:
        claimed.remember_epoch(4)
        claimed.remember_epoch(3)
        assert claimed.epoch_seen == 4
    with StoreDirectory.claim(tmp_path, "c1", "dn-1") as claimed:
        assert (claimed.epoch_seen, claimed.node) == (4, "dn-1")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"layout_version": 1}', '{"layout_version": "1"}'])
def test_a_damaged_identity_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "identity.json").write_text(content)
    with pytest.raises(StartupError, match="damaged"), StoreDirectory.claim(tmp_path, "c1", "dn-1"):
        pass


def test_a_directory_of_a_newer_peacefs_is_refused(tmp_path: Path) -> None:
    identity = {"layout_version": 2, "cluster": "c1", "node": "dn-1", "something": "new"}
    (tmp_path / "identity.json").write_text(json.dumps(identity))
    with pytest.raises(StartupError, match="newer peacefs"), StoreDirectory.claim(tmp_path, "c1", "dn-1"):
        pass


def test_commit_that_was_heard_of_is_remembered_and_never_a_lower_one(tmp_path: Path) -> None:
    for commits, remembered in (((), 0), ((7, 5), 7), ((6,), 7), ((1 << 62,), 1 << 62)):
        with StoreDirectory.claim(tmp_path / "d", "c1", "dn-1") as claimed:
            for commit in commits:
                claimed.remember_commit(commit)
            assert claimed.commit_seen == remembered


def test_commit_that_cannot_be_read_any_more_is_none(tmp_path: Path) -> None:
    with StoreDirectory.claim(tmp_path / "d", "c1", "dn-1") as claimed:
        claimed.remember_commit(7)
    for damaged in (b"", b"\xff" * 12, b"short"):
        (tmp_path / "d" / "commit.seen").write_bytes(damaged)
        with StoreDirectory.claim(tmp_path / "d", "c1", "dn-1") as claimed:
            assert claimed.commit_seen == 0
