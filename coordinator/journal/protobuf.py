"""The part of protocol buffers that etcd's messages need: integers, bytes, text, messages, and lists of these.

A message is a class whose annotations bear the numbers of its fields:

    class Pair(Message, frozen=True):
        key: Annotated[bytes, 1] = b""
        lease: Annotated[int, 6] = 0
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, Final, NamedTuple, Self, get_args, get_origin, get_type_hints

import msgspec

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_ALL_BITS: Final = (1 << 64) - 1


class MalformedMessage(ValueError):
    """The bytes are not a message of the expected class."""


class _Field(NamedTuple):
    name: str
    tag: bytes
    kind: type
    is_repeated: bool
    default: object


class Message(msgspec.Struct, frozen=True):
    """A message. A field with its default value is not encoded; to encode 0, make the default None."""

    def encode(self) -> bytes:
        written = bytearray()
        for field in _fields(type(self)).values():
            value = getattr(self, field.name)
            if value == field.default:
                continue
            for each in value if field.is_repeated else (value,):
                if isinstance(each, int):
                    written += field.tag + _varint(each & _ALL_BITS)
                else:
                    content = each if isinstance(each, bytes) else each.encode()
                    written += field.tag + _varint(len(content)) + content
        return bytes(written)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Decode a message. Skip unknown fields. Raises MalformedMessage."""
        values: dict[str, Any] = {}
        data, at = memoryview(data), 0
        while at < len(data):
            tag, at = _take_varint(data, at)
            wire_type, field = tag & 7, _fields(cls).get(tag >> 3)
            number, value = 0, None
            if wire_type in (_VARINT, _BYTES):
                number, at = _take_varint(data, at)
            if wire_type != _VARINT:
                end = at + (number if wire_type == _BYTES else _FIXED_BYTES.get(wire_type, len(data)))
                if end > len(data):
                    raise MalformedMessage(f"a field of wire type {wire_type} is unknown or cut off")
                value, at = data[at:end], end
            if field is not None:
                read = _read(field.kind, number, value)
                values[field.name] = (*values.get(field.name, ()), read) if field.is_repeated else read
        return cls(**values)


@cache
def _fields(message: type[Message]) -> dict[int, _Field]:
    """Return the fields of a class of messages, by number."""
    hints = get_type_hints(message, include_extras=True)
    found: dict[int, _Field] = {}
    for declared in msgspec.structs.fields(message):
        kind, number = get_args(hints[declared.name])
        is_repeated = get_origin(kind) is tuple
        if is_repeated or isinstance(kind, UnionType):
            kind = get_args(kind)[0]
        tag = _varint(number << 3 | (_VARINT if issubclass(kind, int) else _BYTES))
        found[number] = _Field(declared.name, tag, kind, is_repeated, declared.default)
    return found


def _read(kind: type, number: int, value: memoryview | None) -> object:
    """Return a field's value: a number if it has no bytes."""
    if (value is None) != issubclass(kind, int):
        raise MalformedMessage(f"a field should be {kind.__name__}")
    if value is None:
        return kind(number - (number >> 63 << 64))
    if issubclass(kind, Message):
        return kind.decode(value)
    try:
        return str(value, "utf-8") if kind is str else bytes(value)
    except UnicodeDecodeError:
        raise MalformedMessage("a field should be text") from None


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def _take_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and the offset behind it."""
    number = 0
    for place, byte in enumerate(data[at : at + 10]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number & _ALL_BITS, at + place + 1
    raise MalformedMessage("a number has no end")
