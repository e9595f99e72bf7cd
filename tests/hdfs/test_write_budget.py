"""The memory of a block is free again, however its writer ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from peacefs.datanode.hdfs.block_parts import BlockParts
from peacefs.datanode.hdfs.block_writer import BlockWriter
from peacefs.datanode.hdfs.heartbeats import Heartbeats
from peacefs.datanode.hdfs.write_budget import WriteBudget
from peacefs.protocol.errors import ChecksumMismatch, PeacefsError, PeerUnreachable
from peacefs.protocol.hadoop.datatransfer_pb2 import OpWriteBlockProto
from peacefs.protocol.messages import Allocated
from peacefs.protocol.tokens import BlockWrite

BUDGET, BEGUN = 1 << 20, 1000


class GoneClient:
    peer = "a test"

    def send_message(self, message: object) -> None:
        raise PeerUnreachable("the client has gone")


class Tail:
    def forget_tail(self) -> None: ...


class Earlier:
    """The bytes of another datanode, the last of which may be rotten."""

    def __init__(self, *, is_rotten: bool) -> None:
        self._is_rotten = is_rotten

    def of(self, chunks: Sequence[int], length: int) -> Iterator[bytes]:
        yield bytes(length)
        if self._is_rotten:
            raise ChecksumMismatch("a test")


@pytest.mark.parametrize(("is_rotten", "fault"), [(False, PeerUnreachable), (True, ChecksumMismatch)])
def test_writer_that_ends_before_its_first_packet_holds_nothing(
    is_rotten: bool, fault: type[PeacefsError]
) -> None:
    budget = WriteBudget(BUDGET)
    wanted = OpWriteBlockProto(minBytesRcvd=BEGUN, stage=OpWriteBlockProto.PIPELINE_SETUP_STREAMING_RECOVERY)
    wanted.requestedChecksum.type, wanted.requestedChecksum.bytesPerChecksum = 2, 512
    token = BlockWrite(0.0, "", 1, 1, 1 << 20, Allocated(1, 1, [], ""), 0, [1])
    writer = BlockWriter(
        GoneClient(),  # type: ignore[arg-type]
        wanted,
        token,
        BlockParts(Tail(), None, budget),  # type: ignore[arg-type]
        Heartbeats(),
        Earlier(is_rotten=is_rotten),  # type: ignore[arg-type]
    )
    with pytest.raises(fault):
        writer.serve()
    assert budget.try_take(BUDGET)
