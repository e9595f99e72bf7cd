"""Fork the node processes of dataflows from an interpreter that has imported their modules."""

from __future__ import annotations

import pytest
from support import prepared_starts


@pytest.fixture(autouse=True)
def _prepared_nodes(request: pytest.FixtureRequest) -> None:
    """Start the prepared interpreter before a test: a host starts its nodes on its own threads."""
    if request.node.get_closest_marker("cluster"):
        prepared_starts.begin("node")
