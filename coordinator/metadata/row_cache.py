"""Caches of rows: in two generations, and the names of a directory as far as they are known."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from .model import InodeId

K = TypeVar("K")
V = TypeVar("V")


class Unknown:
    """The type of what is said where nothing is known, as opposed to None, which is for nothing there."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()


class Generations(Generic[K, V]):
    """A cache in two generations: what nobody asks for while the younger one fills up is forgotten."""

    def __init__(self, weight_max: int, weigh: Callable[[V], int] = lambda value: 1) -> None:
        self._weight_max = max(weight_max // 2, 1)
        self._weigh = weigh
        #: The younger generation. What is looked up in it alone counts as being asked for.
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
        self.young[key] = value
        self.grow(self._weigh(value))

    def grow(self, weight: int) -> None:
        """Count so much more for what is held."""
        self._weight += weight
        if self._weight > self._weight_max:
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
    """What is known of a directory's names: the inode of each, None for one that is known to be absent.

    With `is_whole` all of its names are there, and no others.
    """

    __slots__ = ("inodes", "is_large", "is_whole", "ordered")

    def __init__(self, *, is_whole: bool) -> None:
        self.inodes: dict[str, InodeId | None] = {}
        self.is_whole = is_whole
        #: It was found to have more names than are loaded at once.
        self.is_large = False
        #: The names in byte order, once somebody has asked for them; only of a whole directory.
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
