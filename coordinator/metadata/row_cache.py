"""Caches: one in two generations, and one for the names of a directory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from .model import InodeId

K = TypeVar("K")
V = TypeVar("V")


class Unknown:
    """The type of UNKNOWN, for a key that is not in a cache. None is for a key that is known to have no row."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()


class Generations(Generic[K, V]):
    """A cache in two generations. Entries that are not used while the younger one fills up are dropped."""

    def __init__(self, weight_max: int, weigh: Callable[[V], int] | None = None) -> None:
        """Without `weigh` each value weighs 1."""
        self._weight_max = max(weight_max // 2, 1)
        self._weigh = weigh
        #: The younger generation. A caller that looks up in it alone sees only entries used lately.
        self.young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._weight = 0

    def get(self, key: K) -> V | Unknown:
        found = self.young.get(key, UNKNOWN)
        if found is UNKNOWN and self._old:
            found = self._old.pop(key, UNKNOWN)
            if found is not UNKNOWN:
                self.put(key, found)  # type: ignore[arg-type]
        return found

    def put(self, key: K, value: V) -> None:
        young = self.young
        young[key] = value
        if self._weigh is None:
            if len(young) > self._weight_max:
                self._age()
        else:
            self.grow(self._weigh(value))

    def grow(self, weight: int) -> None:
        """Add to the weight, if a cached value has grown."""
        self._weight += weight
        if self._weight > self._weight_max:
            self._age()

    def _age(self) -> None:
        self._old, self.young, self._weight = self.young, {}, 0

    def forget(self, key: K) -> None:
        self.young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        self.young.clear()
        self._old.clear()
        self._weight = 0

    def __len__(self) -> int:
        return len(self.young) + len(self._old)


class DirectoryNames:
    """The cached names of one directory, each with its inode number, or None if the name does not exist.

    If `is_whole`, all names of the directory are cached.
    """

    __slots__ = ("inodes", "is_large", "is_whole", "ordered")

    def __init__(self, *, is_whole: bool) -> None:
        self.inodes: dict[str, InodeId | None] = {}
        self.is_whole = is_whole
        #: True if the directory has more names than are loaded at once.
        self.is_large = False
        #: The names in byte order, after the first call of `in_order`. Only if `is_whole`.
        self.ordered: list[str] | None = None

    def set(self, name: str, inode: InodeId | None) -> None:
        if not self.is_whole:
            self.inodes[name] = inode
        elif inode is not None:
            if self.ordered is not None and name not in self.inodes:
                insort(self.ordered, name)
            self.inodes[name] = inode
        elif self.inodes.pop(name, None) is not None and self.ordered is not None:
            del self.ordered[bisect_left(self.ordered, name)]

    def in_order(self) -> list[str]:
        if self.ordered is None:
            self.ordered = sorted(self.inodes)
        return self.ordered
