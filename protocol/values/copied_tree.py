"""The result of copying a tree: the answer of `POST /v1/copies`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CopiedTree:
    """The contents of a copy. `space_consumed` counts the bytes of all replicas, which are shared with the
    original.
    """

    directories: int
    files: int
    length: int
    space_consumed: int
