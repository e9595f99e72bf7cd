"""Fault-tolerant dataflows: continuous queries whose operators keep state and survive the loss of a machine.

Begin with `query/query.py`, which users write; `core/unit.py` runs a part of a query, `core/node.py` the parts
on one node, `recovery/technique.py` says what a technique is. `hosts/` moves bytes and time.
Knows `client` and `protocol`; the services know nothing of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import functions
    from .query.query import Query

__all__ = ["Query", "functions"]

_PLACES = {"Query": (".query.query", "Query"), "functions": (".functions", None)}


def __getattr__(name: str) -> Any:
    """Import it when it is asked for: whoever reads or writes a stream log needs no operators and no kernels."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    found = importlib.import_module(module, __name__)
    return found if attribute is None else getattr(found, attribute)
