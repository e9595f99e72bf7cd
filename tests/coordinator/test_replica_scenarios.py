"""Scenarios of replicas: events and their printed results (`tests/scenarios/replicas`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.replica_scenes import ReplicaScenes
from support.scenario_file import check_scenario, scenario_files


@pytest.mark.parametrize("file", scenario_files("replicas"), ids=lambda file: file.stem)
def test_scenario_prints_the_transitions_that_its_file_has(file: Path) -> None:
    check_scenario(file, ReplicaScenes().run)
