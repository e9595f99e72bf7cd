"""Fault-tolerant dataflows: continuous queries whose operators keep state and survive the loss of a machine.

Begin with `query/query.py`, the interface for users. `core/units/unit.py` runs a part of a query, `core/node.py`
runs the parts on one node, and `recovery/technique.py` defines a recovery technique. `hosts/` does the I/O and
measures time. The package uses `state`, `client` and `protocol`; the services do not depend on it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import functions
    from .operators.keyed_process import KeyedFunction
    from .operators.keyed_states import ListOf, MapOf, Value
    from .query.query import Query

__all__ = ["KeyedFunction", "ListOf", "MapOf", "Query", "Value", "functions"]

_STATES = ".operators.keyed_states"
_PLACES = {
    "KeyedFunction": (".operators.keyed_process", "KeyedFunction"),
    "ListOf": (_STATES, "ListOf"),
    "MapOf": (_STATES, "MapOf"),
    "Query": (".query.query", "Query"),
    "Value": (_STATES, "Value"),
    "functions": (".functions", None),
}


def __getattr__(name: str) -> Any:
    """Import `name` on first use, so that reading or writing a stream log does not import the operators."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    found = importlib.import_module(module, __name__)
    return found if attribute is None else getattr(found, attribute)
