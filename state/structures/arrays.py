"""Prepare NumPy arrays for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Unlocked:
    """The memory of a read-only array, which it keeps alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        said = dict(array.__array_interface__)
        said["data"] = (said["data"][0], False)
        self.__array_interface__ = said


def changeable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array or a view that claims to be writable, since kernels are compiled for writable arrays only.

    Kernels only read it.
    """
    if array.flags.writeable or not array.size:
        return array if array.flags.writeable else array.copy()
    return np.asarray(_Unlocked(array))


def identity(dtype: np.dtype[Any], operation: str) -> Any:
    """Return the neutral element of an operation."""
    if operation == "min":
        return np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    if operation == "max":
        return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    return 0
