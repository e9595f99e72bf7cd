"""Answers HDFS's ClientDatanodeProtocol, which readers of an unfinished file ask for the length of a replica."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from peacefs.datanode.store.interface import ReplicaStore
from peacefs.protocol.errors import BadRequest, ProtocolViolation
from peacefs.protocol.hadoop.datatransfer_pb2 import (
    GetReplicaVisibleLengthRequestProto,
    GetReplicaVisibleLengthResponseProto,
)
from peacefs.protocol.hadoop.rpc_codec import (
    CONTEXT_CALL,
    HTTP_ANSWER,
    PING_CALL,
    SASL_CALL,
    HttpRequest,
    Request,
    RequestReader,
    cut_message,
    decode,
    failure,
    method_of,
    success,
)
from peacefs.protocol.hadoop.rpc_pb2 import RpcResponseHeaderProto
from peacefs.protocol.ids import show
from peacefs.protocol.limits import KIB, hop_timeout_s

from .transfer_socket import TransferSocket, begun_message_timeout_s

question_bytes_max: Final = 64 * KIB
# Idle time after which a connection is closed, as in HDFS (ipc.client.connection.maxidletime).
idle_questions_s: Final = 10.0

_PROTOCOL: Final = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol"
_NOT_FOUND: Final = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException"
_DENIED: Final = "org.apache.hadoop.security.AccessControlException"
_NO_METHOD: Final = "org.apache.hadoop.ipc.RpcNoSuchMethodException"
_NO_PROTOCOL: Final = "org.apache.hadoop.ipc.RpcNoSuchProtocolException"


class ReplicaQuestions:
    """Serves connections of Hadoop's RPC, each on its own thread. `TransferServer` calls it.

    The protocol has no block tokens, so clients on other machines get no lengths. They need none, because the
    coordinator tells every reader the length of an unfinished file.
    """

    def __init__(self, store: ReplicaStore) -> None:
        self._store = store

    def serve(self, socket: TransferSocket, on_request: Callable[[], None]) -> None:
        """Answer calls until the client disconnects or is idle.

        `on_request` is called when a request has arrived completely. Raises BadRequest and PeerError.
        """
        reader = RequestReader(question_bytes_max)
        ends_s = time.monotonic() + idle_questions_s
        while (left_s := ends_s - time.monotonic()) > 0 and socket.has_more(left_s):
            raw = socket.receive_some()
            if not raw:
                return
            is_begun = reader.buffered_bytes > 0
            reader.take(raw)
            try:
                while (came := reader.next()) is not None:
                    is_begun = False
                    if isinstance(came, HttpRequest):
                        socket.send_all(HTTP_ANSWER, timeout_s=hop_timeout_s)
                        return
                    if isinstance(came, Request):
                        on_request()
                        if answer := self._answer(came, is_local=socket.is_local):
                            socket.send_all(answer, timeout_s=hop_timeout_s)
            except ProtocolViolation as error:
                raise BadRequest(error.message) from None
            if not reader.buffered_bytes:
                ends_s = time.monotonic() + idle_questions_s
            elif not is_begun:
                ends_s = time.monotonic() + begun_message_timeout_s
        if reader.buffered_bytes:
            raise BadRequest(f"{socket.peer} sends too slowly")

    def _answer(self, request: Request, *, is_local: bool) -> bytes | None:
        header = request.header
        if header.call in (CONTEXT_CALL, PING_CALL):
            return None
        codes = RpcResponseHeaderProto
        if header.call == SASL_CALL:
            return failure(header, _DENIED, "SIMPLE authentication only", codes.FATAL_UNAUTHORIZED, is_fatal=True)
        named, rest = cut_message(request.body)
        method = method_of(named)
        if method.declaringClassProtocolName != _PROTOCOL:
            text = f"Unknown protocol: {method.declaringClassProtocolName}"
            return failure(header, _NO_PROTOCOL, text, codes.ERROR_NO_SUCH_PROTOCOL)
        if method.methodName != "getReplicaVisibleLength":
            text = f"Unknown method {method.methodName} called on {_PROTOCOL} protocol."
            return failure(header, _NO_METHOD, text, codes.ERROR_NO_SUCH_METHOD)
        block = decode(GetReplicaVisibleLengthRequestProto, cut_message(rest)[0]).block
        if not is_local:
            text = "the length of a replica is told to clients of this machine alone; ask for the file's length"
            return failure(header, _DENIED, text, codes.ERROR_APPLICATION)
        replica = self._store.find(block.blockId)
        if replica is None or replica.version < block.generationStamp:
            text = f"Replica not found for chunk {show(block.blockId)}"
            return failure(header, _NOT_FOUND, text, codes.ERROR_APPLICATION)
        return success(header, GetReplicaVisibleLengthResponseProto(length=replica.length))
