"""The two decorators of kernels: one for what Python calls, one for what kernels call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

_Function = Callable[..., Any]

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}


def helper(function: _Function) -> _Function:
    """Compile a function into each kernel that calls it."""
    compiled: _Function = numba.njit(**_OPTIONS)(function)
    return compiled


def kernel(function: _Function) -> _Function:
    """Compile at the first call with each combination of types, or load what an earlier process compiled.

    Numba looks at the file of the kernel alone to see whether its cache is stale; a kernel that calls a helper of
    another file would go on with the old one. So the cache is stamped with all files of this folder.
    """
    compiled: _Function = numba.njit(cache=True, **_OPTIONS)(function)
    # Not a public attribute. Without it the cache is right as long as no file but the kernel's own changes.
    stored: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(stored, "_source_stamp"):
        stored._source_stamp = (stored._source_stamp, _digest())
    return compiled


@cache
def _digest() -> str:
    found = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        found.update(source.read_bytes())
    return found.hexdigest()
