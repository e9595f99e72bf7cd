"""The POSIX suite pjdfstest on a mount: exactly the checks fail that `pjdfstest_failures.toml` explains.

PEACEFS_PJDFSTEST names a checkout in which `autoreconf -i && ./configure && make` was run. It takes minutes.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from support.mounted_tree import mounted, require_fuse
from support.posix_suite import files_of, read, run_file

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]
_SUITE = os.environ.get("PEACEFS_PJDFSTEST")


def explained() -> dict[str, set[int]]:
    """Return the checks that are expected to fail, by test file."""
    table = tomllib.loads(Path(__file__).with_name("pjdfstest_failures.toml").read_text())
    expected = {}
    for files in table.values():
        assert files.pop("reason")
        for name, ranges in files.items():
            ends = [each.split("-") for each in ranges.split(",")]
            expected[name] = {number for each in ends for number in range(int(each[0]), int(each[-1]) + 1)}
    return expected


@pytest.mark.skipif(_SUITE is None, reason="PEACEFS_PJDFSTEST does not name a checkout of pjdfstest")
def test_posix_suite_fails_where_that_is_explained_and_nowhere_else(
    shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require_fuse()
    assert _SUITE is not None
    suite, expected = Path(_SUITE), explained()
    directory = tmp_path_factory.mktemp("posix")
    # Other users of the mount have to reach it.
    for parent in (directory, *directory.parents):
        if parent.owner() == Path.home().owner() and parent != Path(parent.root):
            parent.chmod(parent.stat().st_mode | 0o011)
    with PeaceFileSystem(shared_cluster.http_address) as superuser:
        user = superuser.user
    with mounted(shared_cluster.http_address, directory / "peace", "-o", "allow_other", user=user) as mount:
        place = mount.directory / "pjdfstest"
        place.mkdir()
        for name in files_of(suite):
            outcome = run_file(suite, name, place / name.replace("/", "-"))
            assert not outcome.missing, f"{name}: {outcome.missing} checks did not run"
            wrong = set(outcome.failed) ^ expected.get(name, set())
            assert not wrong, (
                f"{name}: {[(number, outcome.failed.get(number, 'passed')) for number in sorted(wrong)]}"
            )


def test_results_of_the_suite_are_read_as_it_writes_them() -> None:
    said = (
        "1..5\nok 1\nnot ok 2 - tried 'mkdir x 0755', expected 0, got EPERM\nnot ok 3 # TODO FreeBSD\nnot ok 4\n"
    )
    outcome = read(said)
    assert outcome.failed == {2: "tried 'mkdir x 0755', expected 0, got EPERM", 4: ""}
    assert (outcome.passed, outcome.missing) == (2, 1)
