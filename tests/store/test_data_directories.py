"""Directories with which a datanode starts, and directories that it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from peacefs.datanode.disks.data_directories import claim_directories, cluster_of, rooms_of
from peacefs.protocol.errors import StartupError


def claim(identity: Path, *data: Path, node: str = "dn-1") -> str:
    with claim_directories(identity, data, "cluster-1", node) as claimed:
        return claimed.directory.node


def test_all_directories_are_one_datanodes_and_held_by_one_process(tmp_path: Path) -> None:
    home, disks = tmp_path / "home", (tmp_path / "disk-1", tmp_path / "disk-2")
    with claim_directories(home, disks, "cluster-1", "dn-1") as (directory, broken):
        assert directory.node == "dn-1" and not broken
        for path in (home, *disks):
            with pytest.raises(StartupError, match="another datanode is using"):
                claim(path)
    assert claim(home, *disks, node="dn-2") == "dn-1"
    assert claim(home, node="dn-2") == "dn-1"


def test_the_directory_of_the_identity_may_be_one_of_the_disks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert claim(home, home, tmp_path / "disk") == "dn-1"
    (home / "segments").mkdir()
    (home / "segments" / "1").write_bytes(b"chunks")
    assert claim(home, tmp_path / "disk", home) == "dn-1"
    with pytest.raises(StartupError, match="home holds chunks: name it as a --data-dir too"):
        claim(home, tmp_path / "disk")


def test_another_datanodes_disk_and_one_named_twice_are_refused(tmp_path: Path) -> None:
    claim(tmp_path / "home-1", tmp_path / "disk-1", node="dn-1")
    claim(tmp_path / "home-2", tmp_path / "disk-2", node="dn-2")
    with pytest.raises(StartupError, match=r"disk-1 belongs to datanode dn-1, .*home-2 to dn-2"):
        claim(tmp_path / "home-2", tmp_path / "disk-2", tmp_path / "disk-1")
    with pytest.raises(StartupError, match="disk-2 is named twice"):
        claim(tmp_path / "home-2", tmp_path / "disk-2", tmp_path / "home-2" / ".." / "disk-2")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StartupError, match="file"):
        claim(tmp_path / "home-2", tmp_path / "disk-2", tmp_path / "file")


def break_down(directory: Path) -> None:
    """Make the kernel answer EIO to readers of the owner's file, because nothing is mapped at its start."""
    (directory / "identity.json").unlink()
    (directory / "identity.json").symlink_to("/proc/self/mem")


@pytest.mark.evidence("disk-fails-at-start")
def test_a_disk_that_answers_eio_when_it_is_claimed_costs_itself_alone(tmp_path: Path) -> None:
    home, disks = tmp_path / "home", [tmp_path / "disk-1", tmp_path / "disk-2"]
    claim(home, *disks)
    break_down(disks[0])
    with claim_directories(home, disks, "cluster-1", "dn-2") as (directory, broken):
        assert directory.node == "dn-1"
        assert broken == {disks[0]: f"cannot read {disks[0]}/identity.json: Input/output error"}
        with pytest.raises(StartupError, match="another datanode is using"):
            claim(tmp_path / "other", disks[1])
    break_down(home)
    with pytest.raises(StartupError, match=r"home/identity.json: Input/output error"):
        claim(home, *disks)
    with pytest.raises(StartupError, match=r"home/identity.json: Input/output error"):
        cluster_of(home)


def test_directories_on_one_file_system_share_its_room(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    time_s = itertools.count()
    ((_, alone),) = rooms_of(paths[:1], clock=lambda: float(next(time_s)))
    shared = [room() for _path, room in rooms_of(paths)]
    assert 0 < sum(shared) <= alone() * 1.1
    paths[0].rmdir()
    assert alone() == 0, "a disk that cannot say has no room"
