"""Answers the requests of HDFS's data transfer protocol on one connection, one after another."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final

from peacefs.client.transfer.file_flusher import FileFlusher
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.datanode.pipeline.orphaned_chunks import OrphanedChunks
from peacefs.protocol.errors import AccessDenied, BadRequest, PeacefsError, PeerError, Unsupported
from peacefs.protocol.hadoop.data_transfer import Operation
from peacefs.protocol.hadoop.datatransfer_pb2 import (
    ERROR,
    ERROR_ACCESS_TOKEN,
    ERROR_UNSUPPORTED,
    SUCCESS,
    BaseHeaderProto,
    BlockOpResponseProto,
    OpBlockChecksumProto,
    OpReadBlockProto,
    OpRequestShortCircuitAccessProto,
    OpTransferBlockProto,
    OpWriteBlockProto,
    ReleaseShortCircuitAccessRequestProto,
    ReleaseShortCircuitAccessResponseProto,
    ShortCircuitShmRequestProto,
)
from peacefs.protocol.hadoop.hdfs_pb2 import TokenProto
from peacefs.protocol.limits import handshake_timeout_s
from peacefs.protocol.tokens import BlockWrite, ChunkRead, FileLease, Signer
from peacefs.runtime.thread_driver import ThreadDriver

from .block_parts import BlockParts, flushed_tail_bytes_max
from .block_reader import BlockReads
from .block_writer import BlockWriter
from .earlier_bytes import EarlierBytes
from .heartbeats import Heartbeats
from .transfer_socket import TransferSocket
from .write_budget import WriteBudget

# HDFS keeps an idle connection open for this long (dfs.datanode.socket.reuse.keepalive).
reuse_wait_s: Final = 4.0

_NO_SHORT_CIRCUIT: Final = "this datanode shares no open files with clients of HDFS; read over the connection"
_RELEASE_REFUSED: Final = ReleaseShortCircuitAccessResponseProto(status=ERROR_UNSUPPORTED, error=_NO_SHORT_CIRCUIT)

log = logging.getLogger("peacefs.hdfs")


class BlockOperations:
    """Serves connections, each on its own thread. The service makes it, `TransferServer` calls it.

    It verifies the token before it reads or writes any part of a block.
    """

    def __init__(
        self,
        signer: Signer,
        reads: BlockReads,
        driver: ThreadDriver,
        grants: GrantClient,
        heartbeats: Heartbeats,
        orphans: OrphanedChunks,
        *,
        budget: WriteBudget | None = None,
        wall_clock: Callable[[], float],
    ) -> None:
        """`wall_clock` returns seconds since 1970, for the expiry of tokens."""
        self._signer = signer
        self._reads = reads
        self._driver = driver
        self._grants = grants
        self._heartbeats = heartbeats
        self._earlier = EarlierBytes(orphans, driver)
        self._budget = budget or WriteBudget()
        self._wall_clock = wall_clock

    def serve(self, socket: TransferSocket, on_request: Callable[[], None]) -> None:
        """Answer requests until the client ends or an error ends the connection.

        `on_request` is called when a request has arrived completely. Raises BadRequest and PeerError. All other
        errors are sent to the client.
        """
        wait_s = handshake_timeout_s
        while (operation := socket.receive_operation(wait_s)) is not None:
            try:
                if not self._perform(socket, operation, on_request):
                    return
            except PeerError:
                raise
            except PeacefsError as fault:
                _refuse(socket, fault)
                if isinstance(fault, BadRequest):
                    raise
                log.info("%s of %s: %s", operation.name, socket.peer, fault.message)
                return
            wait_s = reuse_wait_s

    def _perform(self, socket: TransferSocket, operation: Operation, on_request: Callable[[], None]) -> bool:
        """Answer one request. Return whether another may follow on the connection."""
        match operation:
            case Operation.READ_BLOCK:
                read = socket.receive_request(OpReadBlockProto)
                on_request()
                return self._reads.send(socket, read, _text(read.header.baseHeader.token))
            case Operation.WRITE_BLOCK:
                write = socket.receive_request(OpWriteBlockProto)
                on_request()
                self._writer(socket, write).serve()
                return False
            case Operation.BLOCK_CHECKSUM:
                wanted = socket.receive_request(OpBlockChecksumProto)
                on_request()
                self._reads.checksum(socket, wanted, _text(wanted.header.token))
                return True
            case Operation.TRANSFER_BLOCK:
                transfer = socket.receive_request(OpTransferBlockProto)
                on_request()
                # Copy nothing: our own pipeline sends every byte to the new datanodes.
                self._verify_reader(transfer.header.baseHeader)
                socket.send_message(BlockOpResponseProto(status=SUCCESS))
                return False
            case Operation.REQUEST_SHORT_CIRCUIT_FDS:
                socket.receive_request(OpRequestShortCircuitAccessProto)
                socket.send_message(BlockOpResponseProto(status=ERROR_UNSUPPORTED, message=_NO_SHORT_CIRCUIT))
                return True
            case Operation.REQUEST_SHORT_CIRCUIT_SHM:
                socket.receive_request(ShortCircuitShmRequestProto)
                # A release has the same answer message.
                socket.send_message(_RELEASE_REFUSED)
                return True
            case Operation.RELEASE_SHORT_CIRCUIT_FDS:
                socket.receive_request(ReleaseShortCircuitAccessRequestProto)
                socket.send_message(_RELEASE_REFUSED)
                return True
            case _:
                raise Unsupported(f"{operation.name} is between HDFS's own datanodes and is not served here")

    def _verify_reader(self, header: BaseHeaderProto) -> None:
        token = self._signer.verify(_text(header.token), ChunkRead, self._wall_clock())
        if token.chunk != header.block.blockId:
            raise AccessDenied("the token is for another block")

    def _verified(self, token: TokenProto) -> BlockWrite:
        return self._signer.verify(_text(token), BlockWrite, self._wall_clock())

    def _writer(self, socket: TransferSocket, wanted: OpWriteBlockProto) -> BlockWriter:
        token = self._verified(wanted.header.baseHeader.token)
        lease = self._signer.verify(token.lease, FileLease, self._wall_clock())
        flusher = FileFlusher(
            token.lease,
            token.allocated,
            token.file_block_bytes,
            lease.holder,
            self._grants,
            has_lease=True,
            merge_bytes=flushed_tail_bytes_max // 2,
        )
        # The HDFS client knows the pipeline of its block, and contacts later nodes if the first one dies.
        flusher.needs_grants = False
        parts = BlockParts(flusher, self._driver, self._budget)
        return BlockWriter(socket, wanted, token, parts, self._heartbeats, self._earlier)


def _text(token: TokenProto) -> str:
    """Return the text of our token inside HDFS's token. Raises AccessDenied."""
    try:
        return token.identifier.decode("ascii")
    except UnicodeDecodeError:
        raise AccessDenied("the block token is malformed; ask the coordinator for the block's locations") from None


def _refuse(socket: TransferSocket, fault: PeacefsError) -> None:
    status = ERROR
    if isinstance(fault, AccessDenied):
        status = ERROR_ACCESS_TOKEN
    elif isinstance(fault, Unsupported):
        status = ERROR_UNSUPPORTED
    with contextlib.suppress(PeerError):
        socket.send_message(BlockOpResponseProto(status=status, firstBadLink="", message=fault.message))
