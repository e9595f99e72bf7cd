"""A client of HDFS and two coordinators: a standby identifies itself, and work continues at the next leader."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.etcd import etcd_binary
from support.hadoop_rpc import HadoopRpc, RemoteError
from support.waiting import wait_until

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import FsPermissionProto

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
CLIENT = "DFSClient_of_a_test"
PERMISSION = FsPermissionProto(perm=0o755)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    etcd_binary()
    with LocalCluster(tmp_path / "up", 1, 0, standby=True) as cluster:
        yield cluster


def connected(member: LocalMember) -> HadoopRpc:
    return HadoopRpc(member.readiness.http_host, member.readiness.hdfs_port, getpass.getuser())


def state(rpc: HadoopRpc) -> str:
    found = rpc.call("getHAServiceState", pb.HAServiceStateRequestProto(), pb.HAServiceStateResponseProto)
    return str(pb.HAServiceStateProto.Name(found.state))


def leads(rpc: HadoopRpc) -> bool:
    try:
        rpc.call("getFileInfo", pb.GetFileInfoRequestProto(src="/"), pb.GetFileInfoResponseProto)
    except RemoteError:
        return False
    return True


def deleted(rpc: HadoopRpc, path: str, *, again: bool = False) -> bool:
    gone = pb.DeleteRequestProto(src=path, recursive=True)
    return rpc.call("delete", gone, pb.DeleteResponseProto, again=again).result


def test_standby_sends_clients_on_and_the_next_leader_knows_what_was_answered_and_begun(
    cluster: LocalCluster,
) -> None:
    assert cluster.standby is not None
    with connected(cluster.coordinator) as first, connected(cluster.standby) as second:
        wait_until(lambda: leads(first), "the coordinator leads")
        assert (state(first), state(second)) == ("ACTIVE", "STANDBY")
        with pytest.raises(RemoteError) as refused:
            second.call("getFileInfo", pb.GetFileInfoRequestProto(src="/"), pb.GetFileInfoResponseProto)
        assert refused.value.class_name == "org.apache.hadoop.ipc.StandbyException"
        made = pb.MkdirsRequestProto(src="/gone", masked=PERMISSION, createParent=True)
        assert first.call("mkdirs", made, pb.MkdirsResponseProto).result
        created = pb.CreateRequestProto(
            src="/begun",
            masked=PERMISSION,
            clientName=CLIENT,
            createFlag=pb.CREATE,
            createParent=True,
            replication=1,
            blockSize=1 << 20,
        )
        file = first.call("create", created, pb.CreateResponseProto).fs
        assert deleted(first, "/gone")

        cluster.coordinator.kill()
        wait_until(lambda: leads(second), "the other one leads")
        assert state(second) == "ACTIVE"
        # The client's proxy provider sends the last call again, with its ids, to the other coordinator.
        second.client, second.calls = first.client, first.calls
        assert deleted(second, "/gone", again=True)
        assert not deleted(second, "/gone")
        # The file has the lease of its client.
        for stranger in ("DFSClient_of_another", ""):
            theirs = pb.AddBlockRequestProto(src="/begun", clientName=stranger, fileId=file.fileId)
            with pytest.raises(RemoteError):
                second.call("addBlock", theirs, pb.AddBlockResponseProto)
        renewed = pb.RenewLeaseRequestProto(clientName=CLIENT)
        second.call("renewLease", renewed, pb.RenewLeaseResponseProto)
        more = pb.AddBlockRequestProto(src="/begun", clientName=CLIENT, fileId=file.fileId)
        assert len(second.call("addBlock", more, pb.AddBlockResponseProto).block.locs) == 1
        asked = pb.IsFileClosedRequestProto(src="/begun")
        assert not second.call("isFileClosed", asked, pb.IsFileClosedResponseProto).result
        ended = pb.CompleteRequestProto(src="/begun", clientName=CLIENT, fileId=file.fileId)
        assert second.call("complete", ended, pb.CompleteResponseProto).result
        assert second.call("complete", ended, pb.CompleteResponseProto, again=True).result
        assert second.call("isFileClosed", asked, pb.IsFileClosedResponseProto).result
