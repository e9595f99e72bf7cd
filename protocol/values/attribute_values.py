"""Values of extended attributes as text: in quotes, hexadecimal or base64, as in Hadoop's XAttrCodec. Pure."""

from __future__ import annotations

import base64
import binascii
from enum import Enum

_HEX_PREFIX, _BASE64_PREFIX = "0x", "0s"


class Encoding(Enum):
    """The text encoding of a value."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


def encode(value: bytes, encoding: Encoding) -> str:
    """Encode a value. As TEXT, bytes that are not UTF-8 are lost."""
    if encoding is Encoding.HEX:
        return _HEX_PREFIX + value.hex()
    if encoding is Encoding.BASE64:
        return _BASE64_PREFIX + base64.b64encode(value).decode()
    return '"' + value.decode(errors="replace") + '"'


def decode(text: str) -> bytes:
    """Decode a value. Without quotes or a prefix it is plain text. Raises ValueError."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].encode()
    prefix, rest = text[:2].lower(), text[2:]
    if prefix == _HEX_PREFIX:
        return binascii.unhexlify(rest)
    if prefix == _BASE64_PREFIX:
        return base64.b64decode(rest)
    return text.encode()
