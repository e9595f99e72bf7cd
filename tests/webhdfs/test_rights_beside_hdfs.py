"""Owners, groups and permissions of implicitly created files and directories, compared with a NameNode."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Iterator

import pytest
from oracles import hdfs_rights
from support.long_runs import often

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.namespace.permissions import Callers

from .conftest import NameSide

MODES = hdfs_rights.MODES[:: often(3, 1)]


@pytest.fixture
def files(shared_cluster: LocalCluster) -> Iterator[hdfs_rights.WebHdfs]:
    with contextlib.closing(hdfs_rights.WebHdfs(shared_cluster.webhdfs_uri)) as opened:
        yield opened


@pytest.mark.cluster
def test_made_on_the_way_is_as_hdfs_makes_it_for_each_user(files: hdfs_rights.WebHdfs) -> None:
    known = hdfs_rights.with_masked_parents(hdfs_rights.recorded()["below"])
    told = hdfs_rights.play(files, f"/rights-{os.urandom(4).hex()}", MODES)
    ends = tuple(f" in {mode}" for mode in MODES)
    assert told == {name: said for name, said in known.items() if name.endswith(ends)}
    assert len(told) == len(MODES) * len(hdfs_rights.ATTEMPTS) * 3


def test_root_is_for_superusers_as_in_hdfs(tmp_path, signer) -> None:
    side = NameSide(tmp_path, signer, Callers(getpass.getuser()), open_to_all=False)
    with contextlib.closing(side), side.served:
        side.register("dn-1", 9866, 9864)
        known = hdfs_rights.recorded()["root"]
        shown = side.ask("GET", "/", "GETFILESTATUS", user_name="ann").json["FileStatus"]
        assert (shown["group"], shown["permission"]) == tuple(known["root"].split(":")[1:])
        for user in ("ann", "bob"):
            for op in ("MKDIRS", "CREATE"):
                said = side.ask("PUT", f"/{user}/a", op, user_name=user)
                assert f"{said.status} missing" == known[f"{user}: {op} in /"], said
