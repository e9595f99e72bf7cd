"""State of keyed functions: how it is declared, and how a function reads and changes it.

A function declares named states: a value, a list or a map for each key. Each is kept exactly, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from peacefs.dataflow.model.durations import Duration, microseconds
from peacefs.dataflow.model.schemas import as_type
from peacefs.protocol.errors import InvalidQuery

Kind: TypeAlias = str | pa.DataType | None
#: The default of a value that has none.
_NOTHING: Final = object()


@dataclass(frozen=True)
class Value:
    """One value per key.

    `kind`: its Arrow type; without it, any value that state can keep exactly. `default`: what a key has without a
    value. `ttl`: the value is gone when event time has advanced by this much since it was set.
    """

    kind: Kind = None
    default: Any = _NOTHING
    ttl: Duration | None = None

    def __str__(self) -> str:
        return _described("value", self.ttl, self.kind)

    @property
    def can_be_added(self) -> bool:
        """True if keys from before the state was declared have a sensible value."""
        return self.default is not _NOTHING


@dataclass(frozen=True)
class ListOf:
    """A list per key. `ttl` counts since the last change."""

    kind: Kind = None
    ttl: Duration | None = None
    can_be_added = True

    def __str__(self) -> str:
        return _described("list", self.ttl, self.kind)


@dataclass(frozen=True)
class MapOf:
    """A map per key. `ttl` counts since the last change."""

    key_kind: Kind = None
    kind: Kind = None
    ttl: Duration | None = None
    can_be_added = True

    def __str__(self) -> str:
        return _described("map", self.ttl, self.key_kind, self.kind)


Declared: TypeAlias = Value | ListOf | MapOf


def ttl_us(declared: Declared) -> int | None:
    return None if declared.ttl is None else microseconds(declared.ttl, "ttl")


class ValueState:
    """The value of one key, as a function sees it."""

    def __init__(self, declared: Value, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self._declared, self._get, self._put = declared, get, put

    def get(self) -> Any:
        """Return the value, or the default."""
        value = self._get()
        if value is not None:
            return value
        return None if self._declared.default is _NOTHING else self._declared.default

    def set(self, value: Any) -> None:
        """Replace the value. None removes it."""
        self._put(None if value is None else checked(value, self._declared.kind))

    def clear(self) -> None:
        self._put(None)


class ListState:
    """The list of one key."""

    def __init__(self, declared: ListOf, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self._declared, self._get, self._put = declared, get, put

    def append(self, value: Any) -> None:
        self.extend([value])

    def extend(self, values: Iterable[Any]) -> None:
        self._put([*(self._get() or ()), *(checked(each, self._declared.kind) for each in values)] or None)

    def replace(self, values: Iterable[Any]) -> None:
        self._put([checked(each, self._declared.kind) for each in values] or None)

    def clear(self) -> None:
        self._put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._get() or ())

    def __len__(self) -> int:
        return len(self._get() or ())


class MapState(MutableMapping[Any, Any]):
    """The map of one key."""

    def __init__(self, declared: MapOf, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self._declared, self._get, self._put = declared, get, put

    def __getitem__(self, key: Any) -> Any:
        return (self._get() or {})[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._put(
            {
                **(self._get() or {}),
                checked(key, self._declared.key_kind): checked(value, self._declared.kind),
            }
        )

    def __delitem__(self, key: Any) -> None:
        had = dict(self._get() or {})
        del had[key]
        self._put(had or None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._get() or ())

    def __len__(self) -> int:
        return len(self._get() or ())


def check_declared(name: object, declared: object) -> None:
    """Raise InvalidQuery unless this is a state with a known type."""
    if not isinstance(name, str) or not isinstance(declared, Value | ListOf | MapOf):
        raise InvalidQuery(f"state {name!r} is {declared!r}: declare it as Value('int64'), ListOf() or MapOf()")
    kinds = (declared.kind, declared.key_kind) if isinstance(declared, MapOf) else (declared.kind,)
    for kind in kinds:
        if kind is not None:
            as_type(name, kind)
    ttl_us(declared)
    if isinstance(declared, Value) and declared.default is not _NOTHING and declared.default is not None:
        try:
            checked(declared.default, declared.kind)
        except TypeError as error:
            raise InvalidQuery(f"the default of state {name!r} does not fit: {error}") from None


def checked(value: Any, kind: Kind) -> Any:
    """Return a value. Raises TypeError if it is not exactly one of its declared type."""
    if kind is None:
        return value
    wanted = as_type("state", kind)
    try:
        same = pa.scalar(value, wanted).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        same = None
    both_nan = isinstance(value, float) and math.isnan(value) and isinstance(same, float) and math.isnan(same)
    if not both_nan and (type(same) is not type(value) or same != value):
        raise TypeError(f"{value!r} cannot be kept in a state of type {wanted} as it is")
    return value


def _described(form: str, ttl: Duration | None, *kinds: Kind) -> str:
    of = " to ".join("any" if kind is None else str(as_type("state", kind)) for kind in kinds)
    return f"{form} of {of}" + ("" if ttl is None else f", gone after {microseconds(ttl, 'ttl')} us")
