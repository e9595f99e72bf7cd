"""Hadoop's RPC on the wire, for a server: bytes in, requests out; answers to bytes. Pure.

A connection begins with a header of seven bytes. Then come frames: a length of four bytes, and messages that each
have a length of their own. Whatever is wrong with the bytes raises ProtocolViolation, and the connection must be
closed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from peacefs.protocol.errors import ProtocolViolation

from .rpc_pb2 import RequestHeaderProto, RpcRequestHeaderProto, RpcResponseHeaderProto, RpcSaslProto

#: Values of the header's last byte.
AUTH_SIMPLE: Final = 0
AUTH_SASL: Final = 0xDF
#: Call ids that are no calls.
CONTEXT_CALL: Final = -3
PING_CALL: Final = -4
SASL_CALL: Final = -33

_MAGIC: Final = b"hrpc"
_VERSION: Final = 9
_HEADER_BYTES: Final = 7
_LENGTH_BYTES: Final = 4
_VARINT_BYTES_MAX: Final = 5
#: A client id is a UUID; clients that have none send no bytes.
_CLIENT_ID_BYTES: Final = (0, 16)
_NO_RETRY: Final = -1
#: Status, version, and the tag of the client id in the header of an answer.
_SUCCESS_AND_VERSION: Final = bytes((0x10, 0, 0x18, _VERSION, 0x3A))
#: The header that Hadoop's clients write for nearly all calls: the kind, the operation, then these three fields.
#: Protobuf takes three times as long to read it.
_USUAL_HEADER: Final = re.compile(
    rb"\x08\x02\x10\x00\x18([\x80-\xff]{0,3}[\x00-\x7f])\x22\x10(.{16})\x28([\x00-\x7f])", re.DOTALL
)
#: What a browser is answered.
HTTP_ANSWER: Final = (
    b"HTTP/1.1 404 Not Found\r\nContent-type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is a port for Hadoop's RPC (hdfs://). For a browser, use the coordinator's HTTP port.\r\n"
)
M = TypeVar("M", bound=Message)


class ConnectionHeader(NamedTuple):
    """The first bytes of a connection. `auth` is AUTH_SIMPLE or AUTH_SASL."""

    auth: int


class HttpRequest(NamedTuple):
    """The first bytes of a connection, if they are HTTP."""


class CallHeader(NamedTuple):
    """What a frame's header says of the call: its id, the client's id, and how often the call was repeated."""

    call: int
    client: bytes
    retry: int


class Request(NamedTuple):
    """A frame: its header, and the bytes after it."""

    header: CallHeader
    body: bytes


class RequestReader:
    """Takes the bytes of one connection, and gives its header and requests."""

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max` may be changed at any time. It limits the frames that are begun from then on."""
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._at = 0
        self._has_header = False

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer) - self._at

    def take(self, data: bytes) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next(self) -> ConnectionHeader | HttpRequest | Request | None:
        """Return the next header or request; None until more bytes have come. Raises ProtocolViolation."""
        return self._next_request() if self._has_header else self._next_header()

    def _next_header(self) -> ConnectionHeader | HttpRequest | None:
        begun = bytes(self._buffer[:_LENGTH_BYTES])
        if begun != _MAGIC[: len(begun)]:
            if begun == b"GET ":
                return HttpRequest()
            if len(begun) < _LENGTH_BYTES and b"GET "[: len(begun)] == begun:
                return None
            raise ProtocolViolation(f"a connection for hdfs:// begins with 'hrpc', not with {begun!r}")
        if len(self._buffer) < _HEADER_BYTES:
            return None
        version, _service_class, auth = self._buffer[_LENGTH_BYTES:_HEADER_BYTES]
        if version != _VERSION:
            raise ProtocolViolation(f"version {version} of Hadoop's RPC is not supported: version {_VERSION} is")
        if auth not in (AUTH_SIMPLE, AUTH_SASL):
            raise ProtocolViolation(f"authentication protocol {auth} does not exist in Hadoop's RPC")
        self._at = _HEADER_BYTES
        self._has_header = True
        return ConnectionHeader(auth)

    def _next_request(self) -> Request | None:
        begin = self._at + _LENGTH_BYTES
        if len(self._buffer) < begin:
            return None
        length = int.from_bytes(self._buffer[self._at : begin])
        if length > self.frame_bytes_max:
            raise ProtocolViolation(f"a frame of {length} bytes is over the limit of {self.frame_bytes_max}")
        end = begin + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[begin:end])
        self._at = end
        raw, body = cut_message(frame)
        return Request(_call_header(raw), body)


def _call_header(raw: bytes) -> CallHeader:
    usual = _USUAL_HEADER.fullmatch(raw)
    if usual is not None:
        call, client, retry = usual.groups()
        return CallHeader(_zigzag(call), client, _zigzag(retry))
    # Its texts are not looked at: nothing here reads one.
    header = _parsed(RpcRequestHeaderProto, raw)
    if len(header.clientId) not in _CLIENT_ID_BYTES:
        raise ProtocolViolation(f"a client id has 16 bytes, not {len(header.clientId)}")
    return CallHeader(header.callId, header.clientId, header.retryCount)


def _zigzag(raw: bytes) -> int:
    """Return the signed number that a whole varint stands for."""
    number = 0
    for at, byte in enumerate(raw):
        number |= (byte & 0x7F) << 7 * at
    return number >> 1 ^ -(number & 1)


def cut_message(raw: bytes) -> tuple[bytes, bytes]:
    """Return the message that begins `raw`, without its length, and the bytes after it."""
    if raw and raw[0] < 0x80:
        end = 1 + raw[0]
        if end > len(raw):
            raise ProtocolViolation(f"a message of {raw[0]} bytes ends beyond its frame")
        return raw[1:end], raw[end:]
    length = shift = 0
    for at, byte in enumerate(raw[:_VARINT_BYTES_MAX], 1):
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if length > len(raw) - at:
                raise ProtocolViolation(f"a message of {length} bytes ends beyond its frame")
            return raw[at : at + length], raw[at + length :]
        shift += 7
    raise ProtocolViolation("the length of a message cannot be read")


def decode(kind: type[M], raw: bytes) -> M:
    """Return a message with all that is required in it, whose texts are UTF-8."""
    message = _parsed(kind, raw)
    if not raw.isascii():
        _check_texts(message)
    return message


def _parsed(kind: type[M], raw: bytes) -> M:
    try:
        message: M = kind.FromString(raw)
    except DecodeError:
        raise ProtocolViolation(f"the bytes of a {kind.__name__} cannot be read") from None
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise ProtocolViolation(f"a {kind.__name__} lacks {missing}")
    return message


def _check_texts(message: Message) -> None:
    """Refuse texts that are not UTF-8. Protobuf gives them as bytes."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if not isinstance(text, str):
                    raise ProtocolViolation(f"the text {field.full_name} is not UTF-8")
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                _check_texts(part)


def decode_sasl(body: bytes) -> RpcSaslProto:
    return decode(RpcSaslProto, cut_message(body)[0])


def method_of(raw: bytes) -> RequestHeaderProto:
    """Return the header that names a call's method: the first message of its body."""
    return decode(RequestHeaderProto, raw)


def success(header: CallHeader, reply: Message | bytes) -> bytes:
    """Return the answer to a call; `reply` may be encoded already."""
    call, client, retry = header
    body = reply if isinstance(reply, bytes) else reply.SerializeToString()
    # The header as protobuf would write it. It is the same for all calls of a client, but for a number.
    answered = b"".join(
        (
            b"\x08",
            varint(call & 0xFFFFFFFF),
            _SUCCESS_AND_VERSION,
            bytes((len(client),)),
            client,
            b"\x40",
            varint((retry << 1 ^ retry >> 31) & 0xFFFFFFFF),
        )
    )
    length = varint(len(body))
    frame_bytes = 1 + len(answered) + len(length) + len(body)
    # The header is so short that its length is one byte.
    return b"".join((frame_bytes.to_bytes(_LENGTH_BYTES), bytes((len(answered),)), answered, length, body))


def failure(header: CallHeader, class_name: str, message: str, detail: int, *, is_fatal: bool = False) -> bytes:
    """Return the answer to a call that failed with an exception of Java; after a fatal one the client closes."""
    status = RpcResponseHeaderProto.FATAL if is_fatal else RpcResponseHeaderProto.ERROR
    answered = RpcResponseHeaderProto(
        callId=header.call & 0xFFFFFFFF,
        status=status,
        serverIpcVersionNum=_VERSION,
        clientId=header.client,
        retryCount=header.retry,
        exceptionClassName=class_name,
        errorMsg=message,
        errorDetail=detail,  # type: ignore[arg-type]  # a number of RpcErrorCodeProto
    )
    frame = _with_length(answered.SerializeToString())
    return len(frame).to_bytes(_LENGTH_BYTES) + frame


def connection_failure(class_name: str, message: str, detail: int) -> bytes:
    """Return what a client is told before its connection is closed, if it is no answer to a call."""
    return failure(CallHeader(CONTEXT_CALL, b"", _NO_RETRY), class_name, message, detail, is_fatal=True)


def sasl_answer(message: RpcSaslProto) -> bytes:
    return success(CallHeader(SASL_CALL, b"", _NO_RETRY), message)


def _with_length(raw: bytes) -> bytes:
    return varint(len(raw)) + raw


def length_delimited(tag: bytes, raw: bytes) -> bytes:
    """Return an encoded message as a field of another one."""
    return b"".join((tag, varint(len(raw)), raw))


def varint(number: int) -> bytes:
    """Return a number from 0 as protobuf writes it."""
    if number < 0x80:
        return bytes((number,))
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
