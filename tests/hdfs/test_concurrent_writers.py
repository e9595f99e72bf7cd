"""Many clients write at once, each with the window of Hadoop's client, and none waits for ever."""

from __future__ import annotations

import getpass
import random
import threading

import pytest
from oracles.hdfs_transfer import SUCCESS, Block, TransferClient, sums
from support.hadoop_rpc import HadoopRpc, address_of
from support.long_runs import often

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import FsPermissionProto, LocatedBlockProto
from peacefs.protocol.limits import MIB

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
#: As Hadoop's client: the size of a packet, and how many may be without an acknowledgement.
PACKET, WINDOW = 64512, 80
#: Hadoop's client gives up a pipeline that is silent for longer, with the default settings.
ACK_TIMEOUT_S = 75.0
HEARTBEAT = -1
WRITERS, FILES = 8, often(3, 40)


class Writer(threading.Thread):
    """Writes files of all lengths, with and without flushes, and keeps what they hold."""

    def __init__(self, cluster: LocalCluster, directory: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._address = address_of(cluster.hdfs_uri)
        self._directory = directory
        self._chance = random.Random(seed)
        self._name = f"DFSClient_{seed}"
        self.wanted: dict[str, bytes] = {}
        self.doing = "begins"
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            with HadoopRpc(*self._address, getpass.getuser()) as rpc:
                for number in range(FILES):
                    self._write(rpc, f"{self._directory}/{number}")
        except BaseException as fault:
            self.fault = fault

    def _write(self, rpc: HadoopRpc, path: str) -> None:
        chance = self._chance
        packets, rest = chance.choice([0, 1, 3, 40, 200]), chance.choice([0, 0, 1, 700, 40_000])
        every = chance.choice([0, 1, 7]) if packets < WINDOW else 0
        data = chance.randbytes(packets * PACKET + rest)
        self.doing = f"creates {path}"
        created = pb.CreateRequestProto(
            src=path,
            masked=FsPermissionProto(perm=0o644),
            clientName=self._name,
            createFlag=pb.CREATE | pb.OVERWRITE,
            createParent=True,
            replication=3,
            blockSize=64 * MIB,
        )
        file = rpc.call("create", created, pb.CreateResponseProto).fs.fileId
        if data:
            added = pb.AddBlockRequestProto(src=path, clientName=self._name, fileId=file)
            block = rpc.call("addBlock", added, pb.AddBlockResponseProto).block
            self._send(block, data, every, f"{len(data)} bytes to {path}, flushed every {every} packets")
        self.doing = f"completes {path}"
        done = pb.CompleteRequestProto(src=path, clientName=self._name, fileId=file)
        assert rpc.call("complete", done, pb.CompleteResponseProto).result
        self.wanted[path] = data

    def _send(self, located: LocatedBlockProto, data: bytes, every: int, what: str) -> None:
        block = Block(located.b.blockId, located.b.generationStamp, located.blockToken.identifier.decode())
        acknowledged = sent = 0
        with TransferClient(located.locs[0].id.xferPort) as client:
            client.socket.settimeout(ACK_TIMEOUT_S)

            def await_acks(open_max: int) -> None:
                nonlocal acknowledged
                while sent - acknowledged > open_max:
                    self.doing = f"waits for acknowledgement {acknowledged} of {sent}: {what}"
                    seqno, replies = client.ack()
                    if seqno != HEARTBEAT:
                        assert (seqno, replies[0]) == (acknowledged, SUCCESS)
                        acknowledged += 1

            assert client.ask_to_write(block, targets=len(located.locs) - 1)[1] == [SUCCESS]
            for at in range(0, len(data), PACKET):
                piece = data[at : at + PACKET]
                client.send(piece, at, sent, sums(piece, 512))
                sent += 1
                await_acks(0 if every and sent % every == 0 else WINDOW - 1)
            await_acks(0)
            client.send(b"", len(data), sent, b"", last=True)
            sent += 1
            await_acks(0)


def test_writers_at_the_same_time_all_end(shared_cluster: LocalCluster, files: PeaceFileSystem, home: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    writers = [Writer(shared_cluster, f"{home}/{number}", seed + number) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(ACK_TIMEOUT_S + FILES * 10)
    assert [(writer.doing, writer.fault) for writer in writers if writer.is_alive() or writer.fault] == []
    for writer in writers:
        for path, data in writer.wanted.items():
            assert files.read(path) == data
