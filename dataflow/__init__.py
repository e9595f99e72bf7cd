"""Fault-tolerant dataflows: continuous queries whose operators keep state and survive the loss of a machine.

Begin with `query/query.py`, which users write; `core/unit.py` runs a part of a query, `core/node.py` the parts
on one node, `techniques/interface.py` says how a technique recovers them. `hosts/` moves bytes and time.
Knows `client` and `protocol`; the services know nothing of it.
"""

from __future__ import annotations

from . import functions
from .query.query import Query

__all__ = ["Query", "functions"]
