"""A local cluster's directory is recognised, can grow but not shrink, and has one launcher at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peacefs.client.local_cluster import directory as cluster_directory
from peacefs.client.local_cluster.directory import ClusterDirectory
from peacefs.protocol.errors import StartupError


def claim_and_release(path: Path, datanodes: int | None) -> int:
    claimed = ClusterDirectory.claim(path, datanodes)
    claimed.release()
    return claimed.datanodes


def test_a_new_directory_has_four_datanodes_and_keeps_what_it_was_made_with(tmp_path: Path) -> None:
    assert claim_and_release(tmp_path / "deep" / "new", None) == 4
    assert claim_and_release(tmp_path / "three", 3) == 3
    assert claim_and_release(tmp_path / "three", None) == 3


def test_a_cluster_grows_for_good(tmp_path: Path) -> None:
    claim_and_release(tmp_path, 2)
    assert claim_and_release(tmp_path, 5) == 5
    assert claim_and_release(tmp_path, None) == 5


def test_a_cluster_does_not_shrink_because_chunks_might_be_on_the_missing_datanodes(tmp_path: Path) -> None:
    claim_and_release(tmp_path, 4)
    with pytest.raises(StartupError, match="has 4 datanodes, and 3 might not hold every chunk"):
        claim_and_release(tmp_path, 3)
    assert claim_and_release(tmp_path, None) == 4


@pytest.mark.parametrize("datanodes", [-1, 0, 65])
def test_a_count_out_of_range_makes_no_cluster(tmp_path: Path, datanodes: int) -> None:
    with pytest.raises(StartupError, match="out of range"):
        claim_and_release(tmp_path, datanodes)
    assert not (tmp_path / "cluster.json").exists()


def test_a_directory_with_other_peoples_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(StartupError, match="holds files but no local cluster"):
        claim_and_release(tmp_path, None)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_launcher_that_died_while_it_made_the_directory_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "cluster.json.new").write_text('{"form')
    assert claim_and_release(tmp_path, 2) == 2


@pytest.mark.parametrize(
    ("mark", "advice"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ('{"format": 1}', "damaged"),
        ('{"format": 1, "datanodes": 0}', "damaged"),
        ('{"format": 2, "datanodes": 4, "more": []}', "newer peacefs"),
    ],
)
def test_a_mark_that_cannot_be_trusted_is_not_guessed_at(tmp_path: Path, mark: str, advice: str) -> None:
    (tmp_path / "cluster.json").write_text(mark)
    with pytest.raises(StartupError, match=advice):
        claim_and_release(tmp_path, None)
    assert (tmp_path / "cluster.json").read_text() == mark


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"cannot use the directory .*file"):
        claim_and_release(tmp_path / "file", None)


def test_a_second_launcher_is_refused_until_every_process_of_the_first_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_directory, "local_stop_timeout_s", 0.1)
    first = ClusterDirectory.claim(tmp_path, 2)
    with pytest.raises(StartupError, match="in use by another local cluster"):
        ClusterDirectory.claim(tmp_path, 2)
    reading, writing = os.pipe()
    member = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=reading,
        pass_fds=(first.lock_descriptor,),
    )
    first.release()
    with pytest.raises(StartupError, match="in use by another local cluster"):
        ClusterDirectory.claim(tmp_path, 2)
    os.close(writing)
    member.wait(180)
    os.close(reading)
    ClusterDirectory.claim(tmp_path, 2).release()


def test_a_log_begins_anew_with_each_run_and_the_last_one_is_kept(tmp_path: Path) -> None:
    claimed = ClusterDirectory.claim(tmp_path, 1)
    claimed.new_log("coordinator").write_text("first run")
    claimed.new_log("coordinator").write_text("second run")
    log = claimed.new_log("coordinator")
    claimed.release()
    assert log.read_text() == ""
    assert (tmp_path / "logs" / "coordinator.log.1").read_text() == "second run"
    assert json.loads((tmp_path / "cluster.json").read_text()) == {"format": 1, "datanodes": 1}
