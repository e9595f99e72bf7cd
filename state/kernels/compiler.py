"""The two decorators of kernels: one for functions that Python calls, one for functions that kernels call."""

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
    """Compile at the first call with each combination of types, or load the result from the cache.

    Numba checks only the kernel's own file to see whether its cache is stale, and would miss a changed helper in
    another file. So the cache is stamped with a digest of all files in this folder.
    """
    compiled: _Function = numba.njit(cache=True, **_OPTIONS)(function)
    # A private attribute. Without it the cache notices only changes of the kernel's own file.
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
