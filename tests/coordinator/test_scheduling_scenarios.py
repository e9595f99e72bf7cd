"""Scenarios of write sets: commands and the scheduler's printed reaction (`tests/scenarios/scheduling`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenario_file import check_scenario, scenario_files
from support.scheduling_scenes import SchedulingScenes


@pytest.mark.parametrize("file", scenario_files("scheduling"), ids=lambda file: file.stem)
def test_scenario_prints_the_grants_that_its_file_has(file: Path) -> None:
    check_scenario(file, SchedulingScenes().run)
