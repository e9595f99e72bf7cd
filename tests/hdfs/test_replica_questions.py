"""ClientDatanodeProtocol, which shares the port with the data transfer protocol; asked by hand-made bytes."""

from __future__ import annotations

from typing import Any

from oracles.hdfs_transfer import Block, TransferClient, fields_of, message, varint
from support.transfer_cluster import TransferCluster

PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol"


def _frame(*messages: bytes) -> bytes:
    body = b"".join(varint(len(each)) + each for each in messages)
    return len(body).to_bytes(4, "big") + body


def _delimited(raw: bytes) -> tuple[bytes, bytes]:
    assert raw[0] < 0x80, "short enough for this test"
    return raw[1 : 1 + raw[0]], raw[1 + raw[0] :]


class Asker:
    """A connection of Hadoop's RPC with simple authentication."""

    def __init__(self, client: TransferClient) -> None:
        self._client = client
        self._calls = 0
        # The rpc header: kind 2 (protobuf), operation 0 (a final packet), call id -3 as zigzag, the client's id.
        header = message((1, 2), (2, 0), (3, 5), (4, bytes(16)), (5, 1))
        context = message((2, message((1, "alice"))), (3, PROTOCOL))
        client.socket.sendall(b"hrpc\x09\x00\x00" + _frame(header, context))

    def ask(self, method: str, argument: bytes, protocol: str = PROTOCOL) -> tuple[dict[int, list[Any]], bytes]:
        """Return the header of the answer, and what follows it."""
        self._calls += 1
        header = message((1, 2), (2, 0), (3, self._calls << 1), (4, bytes(16)), (5, 0))
        self._client.socket.sendall(_frame(header, message((1, method), (2, protocol), (3, 1)), argument))
        raw = self._client.exactly(int.from_bytes(self._client.exactly(4), "big"))
        size = raw[0] if raw[0] < 0x80 else (raw[0] & 0x7F) | raw[1] << 7
        at = 1 if raw[0] < 0x80 else 2
        answer = fields_of(raw[at : at + size])
        assert answer[1] == [self._calls]
        return answer, raw[at + size :]


def test_the_length_of_a_replica_is_told_and_nothing_else(transfers: TransferCluster) -> None:
    path = f"{transfers.home}/asked"
    transfers.files.write(path, b"x" * 12_345)
    with transfers.reading(path) as (client, block, _length):
        asker = Asker(client)
        answer, rest = asker.ask("getReplicaVisibleLength", message((1, block.raw)))
        assert answer[2] == [0], answer
        assert fields_of(_delimited(rest)[0])[1] == [12_345]
        answer, _rest = asker.ask("getReplicaVisibleLength", message((1, Block(1, 1, "").raw)))
        assert answer[2] == [1]
        assert answer[4] == [b"org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException"]
        answer, _rest = asker.ask("shutdownDatanode", b"")
        assert (answer[2], answer[4]) == ([1], [b"org.apache.hadoop.ipc.RpcNoSuchMethodException"])
        answer, _rest = asker.ask("getReplicaVisibleLength", b"", protocol="a.b.C")
        assert (answer[2], answer[4]) == ([1], [b"org.apache.hadoop.ipc.RpcNoSuchProtocolException"])
        answer, rest = asker.ask("getReplicaVisibleLength", message((1, block.raw)))
        assert fields_of(_delimited(rest)[0])[1] == [12_345], "the connection goes on after errors"
