"""If a request could be refused for several reasons, the reason is the one that a NameNode gives."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from contract.differences import read_known
from oracles import hdfs_refusals
from oracles.hdfs_rights import WebHdfs
from support.long_runs import often

from peacefs.client.local_cluster.cluster import LocalCluster

_KNOWN = Path(__file__).parent.parent / "contract" / "known_differences.toml"
#: Coprime to the numbers of users and operations, so that the sample includes each of them.
_PART = often(11, 1)


@pytest.mark.cluster
def test_refusals_are_those_of_a_namenode(shared_cluster: LocalCluster) -> None:
    with contextlib.closing(WebHdfs(shared_cluster.webhdfs_uri)) as files:
        told = hdfs_refusals.play(files, f"/refusals-{os.urandom(4).hex()}", part=_PART)
    recorded = hdfs_refusals.recorded()
    assert len(told) == -(-len(recorded) // _PART)
    differ = {name: (said, recorded[name]) for name, said in told.items() if said != recorded[name]}
    known = {difference.name for difference in read_known(_KNOWN.read_text()).get("refusals", [])}
    assert set(differ) - known == set(), differ
