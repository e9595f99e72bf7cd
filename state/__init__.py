"""Paged state: data structures in pages of memory, which checkpoints write as they are (SGuard, section 4).

    pages = PageManager()
    schema = pa.schema([("word", pa.int64()), ("count", pa.int64())])
    counts = UnorderedMap.create(pages.page_set("counts"), schema, "word")
    counts.add_at(words, 1)              # a batch: an Arrow or NumPy array of keys
    counts[17]                           # or a single key, as in a dict

    checkpointer = Checkpointer(pages, DirectoryStore("/var/lib/counts"), "counts")
    checkpointer.load()                  # call it before creating structures; they find their old content
    checkpointer.begin()                 # a short pause; pages are written while they change

Begin with `pages/manager.py`. `structures/` builds on it, `checkpoints/` writes and loads it, `kernels/` holds the
compiled loops. Needs the extra `peacefs[state]` (NumPy, PyArrow, Numba), imported at the first use of a name.
Imports `protocol`, and the client's I/O service; docs/state.md is the guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints.checkpointer import Checkpointer
    from .checkpoints.directory_store import DirectoryStore
    from .checkpoints.memory_store import MemoryStore
    from .checkpoints.peace_store import PeaceStore
    from .pages.manager import PageManager
    from .pages.page_set import PageSet
    from .structures.ordered_map import OrderedMap
    from .structures.raw import Raw
    from .structures.sequences import Deque, List, Queue
    from .structures.unordered_map import UnorderedMap

__all__ = [
    "Checkpointer",
    "Deque",
    "DirectoryStore",
    "List",
    "MemoryStore",
    "OrderedMap",
    "PageManager",
    "PageSet",
    "PeaceStore",
    "Queue",
    "Raw",
    "UnorderedMap",
]

_HOME = {
    "Checkpointer": ".checkpoints.checkpointer",
    "DirectoryStore": ".checkpoints.directory_store",
    "MemoryStore": ".checkpoints.memory_store",
    "PeaceStore": ".checkpoints.peace_store",
    "PageManager": ".pages.manager",
    "PageSet": ".pages.page_set",
    "OrderedMap": ".structures.ordered_map",
    "Raw": ".structures.raw",
    "List": ".structures.sequences",
    "Queue": ".structures.sequences",
    "Deque": ".structures.sequences",
    "UnorderedMap": ".structures.unordered_map",
}


def __getattr__(name: str) -> Any:
    """Import the module of a name at its first use, so that `import peacefs.state` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name], __name__), name)
    except ModuleNotFoundError as error:
        if error.name in ("numpy", "pyarrow", "numba"):
            raise ModuleNotFoundError(
                f"paged state needs {error.name}: pip install 'peacefs[state]'", name=error.name
            ) from None
        raise


def __dir__() -> list[str]:
    return __all__
