"""Python values as bytes and back: values are restored exactly, or refused (decision 61).

A restored value is equal and of the same type. The format is MessagePack. Types that MessagePack does not have are
extensions: a code, and bytes that are MessagePack again.

Keys have the same bytes if they are equal and of the same type; all NaN are one key, and -0.0 is 0.0. A tuple in a
key is stored as an array, since a key cannot contain a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.msgpack import Ext

from peacefs.protocol.errors import RecordRefused

_encode: Final = msgspec.msgpack.encode
_SIMPLE: Final = frozenset({type(None), bool, float, str, bytes})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_US: Final = timedelta(microseconds=1)

_INT, _TUPLE, _SET, _FROZENSET, _DICT, _DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL = range(1, 11)


def encode_value(value: Any) -> bytes:
    """Encode a value as bytes. Raises RecordRefused if `decode_value` could not restore it exactly."""
    return _encoded(value, _packable)


def decode_value(data: bytes) -> Any:
    return _decoder.decode(data)


def encode_key(key: Any) -> bytes:
    """Encode a key as bytes. Raises RecordRefused if the value cannot be a key."""
    return _encoded(key, _packable_key)


def decode_key(data: bytes) -> Any:
    return _hashable(_decoder.decode(data))


def _encoded(value: Any, packable: Callable[[Any], Any]) -> bytes:
    try:
        return _encode(packable(value))
    except RecursionError:
        raise RecordRefused("a value in a state contains itself, or is nested too deeply") from None
    except (UnicodeEncodeError, msgspec.MsgspecError, ValueError) as error:
        raise RecordRefused(f"a value of type {type(value).__name__} cannot be kept in a state: {error}") from None


def _packable(value: Any) -> Any:
    """Convert a value to types that MessagePack has."""
    kind = type(value)
    if kind in _SIMPLE or (kind is int and _INT_MIN <= value <= _INT_MAX):
        return value
    if kind is list:
        return [_packable(each) for each in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _packable(each) for key, each in value.items()}
        return _ext(_DICT, [[_packable(key), _packable(each)] for key, each in value.items()])
    if kind is tuple:
        return _ext(_TUPLE, [_packable(each) for each in value])
    return _scalar(value)


def _packable_key(key: Any) -> Any:
    kind = type(key)
    if kind is float:
        return math.nan if math.isnan(key) else key + 0.0
    if kind in _SIMPLE or (kind is int and _INT_MIN <= key <= _INT_MAX):
        return key
    if kind is tuple:
        return [_packable_key(each) for each in key]
    if kind in (list, dict, set):
        raise RecordRefused(f"a {kind.__name__} cannot be a key of a state, as it cannot be one of a dict")
    return _scalar(key)


def _scalar(value: Any) -> Ext:
    kind = type(value)
    if kind is int:
        return Ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if kind in (set, frozenset):
        # Sorted, so that equal sets have equal bytes.
        return _ext(_SET if kind is set else _FROZENSET, sorted(_encode(_packable(each)) for each in value))
    if kind is datetime:
        return _ext(_DATETIME, [value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)])
    if kind is date:
        return _ext(_DATE, value.isoformat())
    if kind is time:
        return _ext(_TIME, [value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)])
    if kind is timedelta:
        return _ext(_TIMEDELTA, [value.days, value.seconds, value.microseconds])
    if kind is Decimal:
        return _ext(_DECIMAL, str(value))
    raise RecordRefused(
        f"a state cannot keep a value of type {kind.__module__}.{kind.__qualname__} as it is: make it an int, "
        "float, str, bytes, list, tuple, dict, set, Decimal, or one of datetime's types"
    )


def _ext(code: int, value: Any) -> Ext:
    return Ext(code, _encode(value))


def _zone(zone: tzinfo | None) -> Any:
    """Convert a time zone to None, its name, or its offset from UTC in microseconds."""
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        # A zone with a custom name would lose it.
        if repr(timezone(offset)) == repr(zone):
            return offset // _US
    raise RecordRefused(f"a state cannot keep the time zone {zone!r} as it is: use datetime.timezone or ZoneInfo")


def _zone_of(zone: Any) -> tzinfo | None:
    if zone is None:
        return None
    return ZoneInfo(zone) if isinstance(zone, str) else timezone(zone * _US)


def _decoded_ext(code: int, data: memoryview) -> Any:
    if code == _INT:
        return int.from_bytes(data, "big", signed=True)
    return _MAKE[code](_decoder.decode(data))


_MAKE: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: lambda each: set(map(decode_value, each)),
    _FROZENSET: lambda each: frozenset(map(decode_value, each)),
    _DICT: dict,
    _DATETIME: lambda each: datetime.fromisoformat(each[0]).replace(fold=each[1], tzinfo=_zone_of(each[2])),
    _DATE: date.fromisoformat,
    _TIME: lambda each: time.fromisoformat(each[0]).replace(fold=each[1], tzinfo=_zone_of(each[2])),
    _TIMEDELTA: lambda each: timedelta(*each),
    _DECIMAL: Decimal,
}


def _hashable(key: Any) -> Any:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key


_decoder: Final = msgspec.msgpack.Decoder(ext_hook=_decoded_ext)
