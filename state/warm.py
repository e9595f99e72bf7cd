"""Compile the usual kernels before the first tuple arrives: `python -m peacefs.state.warm`."""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np
import pyarrow as pa

from peacefs.state import PageManager, UnorderedMap
from peacefs.state.kernels.checksums import sums_of

_NUMBERS = (
    pa.int64(),
    pa.int32(),
    pa.float64(),
    pa.float32(),
)


def warm() -> None:
    """Call each kernel with each usual type. Later processes load the compiled code from Numba's cache."""
    pages = PageManager(memory_bytes_max=64 * 65_536)
    for number in _NUMBERS:
        schema = pa.schema([("key", pa.int64()), ("value", number)])
        held = UnorderedMap.create(pages.page_set(str(number)), schema, "key")
        keys, values = np.arange(10_000), np.ones(10_000, number.to_pandas_dtype())
        held.upsert(keys, values)
        held.add_at(keys, 1)
        for operation in ("add", "min", "max", "put"):
            held.aggregate(keys, {"value": (operation, values)})
        held.find(keys)
        held.remove(keys)
        pages.destroy(str(number))
    schema = pa.schema([("key", pa.string()), ("value", pa.int64()), ("text", pa.string())])
    named = UnorderedMap.create(pages.page_set("texts"), schema, "key")
    names = [str(key) for key in range(100)]
    for _ in range(2):
        named.upsert(names, {"value": np.arange(100), "text": names})
    named.add_at(names, 1, "value")
    list(named.scan())
    named.remove(names)
    sums_of(pages.frames.words, np.zeros(1, np.int32))


if __name__ == "__main__":
    begun_s = perf_counter()
    warm()
    sys.stdout.write(f"kernels are compiled, in {perf_counter() - begun_s:.1f} s\n")
