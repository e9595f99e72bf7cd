"""A machine of each kind with a fresh chunk store."""

from __future__ import annotations

from pathlib import Path

import pytest
from store.machine import MACHINES, Machine, SimulatedMachine


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
