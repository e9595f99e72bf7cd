"""A datanode that a client of HDFS writes through is killed in the middle of a block."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from oracles.hdfs_transfer import STREAMING_RECOVERY, SUCCESS, sums
from support.transfer_cluster import TransferCluster

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

PACKET = 64512


@pytest.mark.evidence("hdfs-head-dies")
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_acknowledged_bytes_survive_the_end_of_the_first_datanode(tmp_path: Path, end: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    data = random.Random(seed).randbytes(300 * PACKET)
    packets = [data[at : at + PACKET] for at in range(0, len(data), PACKET)]
    with (
        LocalCluster(tmp_path, datanodes=3, port=0) as cluster,
        PeaceFileSystem(cluster.http_address, user="alice") as files,
    ):
        transfers = TransferCluster(cluster, files, "/")
        leased = transfers.leased("/big", "DFSClient_a")
        head = leased.allocated.pipeline[0].node
        acked = 0
        with transfers.writing(leased) as (client, block):
            client.ask_to_write(block)
            for seqno, piece in enumerate(packets[:200]):
                client.send(piece, seqno * PACKET, seqno, sums(piece, 512))
                # As Hadoop's client: at most 80 packets are open.
                if seqno - acked >= 80:
                    assert client.ack() == (acked, [SUCCESS])
                    acked += 1
            member = next(each for each in cluster.members if each.readiness.node == head)
            if end == "killed":
                member.kill()
            else:
                member.terminate()
                assert member.await_end(time.monotonic() + 20)
        assert acked >= 119
        if end == "killed":
            assert files.read("/big") == b"", "nothing was published"
            chunk, node = _begun_chunk(tmp_path, cluster, head)
            leased, begun = transfers.leased("/big", "DFSClient_a"), [chunk]
        else:
            leased, begun = transfers.leased("/big", "DFSClient_a"), []
            node = next(hop.node for hop in leased.allocated.pipeline if hop.node != head)
            assert leased.length >= acked * PACKET, "what came was published"
        with transfers.writing(leased, leased.length, node=node, unpublished=begun) as (client, block):
            answer = client.ask_to_write(block, stage=STREAMING_RECOVERY, received=acked * PACKET)
            assert answer[1] == [SUCCESS], answer
            for seqno, piece in enumerate(packets[acked:], acked):
                client.send(piece, seqno * PACKET, seqno, sums(piece, 512))
                if seqno - acked >= 80:
                    assert client.ack() == (acked, [SUCCESS])
                    acked += 1
            client.send(b"", len(data), len(packets), b"", last=True)
            while acked <= len(packets):
                assert client.ack() == (acked, [SUCCESS])
                acked += 1
        assert files.read("/big") == data


def _begun_chunk(directory: Path, cluster: LocalCluster, head: str) -> tuple[int, str]:
    """Return the chunk that other datanodes were receiving, and one of them, by the files that they write."""
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        for file in directory.glob("datanode-*/staging/*"):
            node = next(
                each.readiness.node
                for each in cluster.members
                if each.readiness.node and each.name == file.parent.parent.name
            )
            if node != head:
                return int(file.name.split("-")[0], 16), node
        time.sleep(0.05)
    raise AssertionError("no other datanode was receiving a chunk")


@pytest.mark.spark
@pytest.mark.long("a JVM and five datanodes")
def test_hadoops_client_writes_on_when_the_datanodes_of_its_block_are_killed(
    tmp_path: Path, stock_gateway: Any
) -> None:
    from support.stock_hadoop import running_hadoop

    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with (
        LocalCluster(tmp_path, datanodes=5, port=0) as cluster,
        PeaceFileSystem(cluster.http_address, user="alice") as files,
        running_hadoop(stock_gateway, cluster.hdfs_uri) as hadoop,
    ):
        stream = hadoop.fs.create(hadoop.path("/log"), True)
        written = b""
        for step in range(60):
            piece = chance.randbytes(chance.choice([10, 1000, 70_000, 300_000]))
            stream.write(piece)
            written += piece
            if step % 3:
                stream.hflush()
                assert files.read("/log") == written
            if step in (15, 40):
                head = stream.getWrappedStream().getPipeline()[0].getDatanodeUuid()
                next(each for each in cluster.members if each.readiness.node == head).kill()
        stream.close()
        assert files.read("/log") == written
        assert hadoop.read("/log") == written
