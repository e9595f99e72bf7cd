"""The first bytes of a connection between processes of a dataflow: who connects, with a proof. No I/O.

0   2  magic "dg"
2   1  format, 1
3   1  1 if the connection only carries beats, else 0
4   1  length of the name
5  32  HMAC-SHA256, under the query's token, of the format, the kind, the address that was dialled, and the name
37     name of the node (UTF-8)

Nothing is decoded before the code is verified. The token itself is not sent. A code is only valid at one address,
so a process that gets the address of a dead node cannot replay the greetings that it receives there. The
connecting end does not wait for an answer, since the other end may be busy with one batch for seconds.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.errors import ProtocolViolation

_HEAD = struct.Struct(">2sBBB32s")
_MAGIC = b"dg"
_FORMAT = 1
_NAME_BYTES_MAX = 255
greeting_bytes_max: Final = _HEAD.size + _NAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who connects. For a connection of `beats`, its end does not mean that messages are lost."""

    node: str
    beats: bool
    #: The length of the greeting. Messages follow it.
    length: int


def greet(node: str, token: str, address: str, *, beats: bool = False) -> bytes:
    """Return the greeting that a node sends after it has dialled `address`."""
    name = node.encode()
    assert len(name) <= _NAME_BYTES_MAX, f"the name {node!r} is too long"
    code = _code(token, address, name, beats=beats)
    return _HEAD.pack(_MAGIC, _FORMAT, beats, len(name), code) + name


def read_greeting(data: bytes | bytearray, token: str, address: str) -> Greeting | None:
    """Parse the greeting that arrived at `address`; None if it is incomplete. Raises ProtocolViolation."""
    start = _HEAD.pack(_MAGIC, _FORMAT, 0, 0, b"")[:3]
    if not start.startswith(data[:3]):
        raise ProtocolViolation("these bytes are no greeting of a node of a dataflow")
    if len(data) < _HEAD.size:
        return None
    _, _, beats, name_bytes, code = _HEAD.unpack_from(data)
    length = _HEAD.size + name_bytes
    if len(data) < length:
        return None
    name = bytes(data[_HEAD.size : length])
    if beats > 1 or not hmac.compare_digest(code, _code(token, address, name, beats=bool(beats))):
        raise ProtocolViolation("the greeting is not of a node of this query")
    return Greeting(name.decode(), bool(beats), length)


def _code(token: str, address: str, name: bytes, *, beats: bool) -> bytes:
    said = b"\0".join((b"peacefs dataflow greeting", bytes((_FORMAT, beats)), address.encode(), name))
    return hmac.digest(token.encode(), said, "sha256")
