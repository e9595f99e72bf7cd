"""Nodes of dataflows in processes of their own are forked from an interpreter that imported what they import."""

from __future__ import annotations

import pytest
from support import prepared_starts


@pytest.fixture(autouse=True)
def _prepared_nodes(request: pytest.FixtureRequest) -> None:
    """Begin it for tests that start processes: a host starts its nodes on threads of its own."""
    if request.node.get_closest_marker("cluster"):
        prepared_starts.begin("node")
