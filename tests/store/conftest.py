"""A machine of each kind with a fresh chunk store."""

from __future__ import annotations

from pathlib import Path

import pytest
from store.machine import MACHINES, Machine, SimulatedMachine, data_of

from peacefs.protocol.limits import small_chunk_bytes_max


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    built = MACHINES[request.param](tmp_path)
    built.start()
    return built


@pytest.fixture
def simulated() -> SimulatedMachine:
    built = SimulatedMachine()
    built.start()
    return built


@pytest.fixture(params=[5000, small_chunk_bytes_max + 5000], ids=["small", "large"])
def content(request: pytest.FixtureRequest) -> bytes:
    """Return a chunk that goes into a segment, and one that gets a file."""
    return data_of(request.param)
