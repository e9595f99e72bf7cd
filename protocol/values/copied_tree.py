"""What a copy of a tree made: the answer of `POST /v1/copies`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CopiedTree:
    """What a copy holds; `space_consumed` counts every replica, which it shares. Bytes."""

    directories: int
    files: int
    length: int
    space_consumed: int
