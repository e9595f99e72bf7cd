"""Random programs on a mount, compared with a local file system that gets the same steps."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from oracles.posix_steps import Player, random_steps
from support.long_runs import often

from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("run", range(often(2, 12)))
def test_mount_answers_as_a_local_file_system(
    run: int, here: Path, home: str, files: PeaceFileSystem, tmp_path: Path
) -> None:
    seed = int(os.environ.get("PEACEFS_SEED") or random.randrange(10**6))
    local = tmp_path / "local"
    local.mkdir()
    mounted, judge = Player(here), Player(local)
    played = []
    try:
        for step in random_steps(seed, 250):
            played.append(step)
            answers = mounted.play(step), judge.play(step)
            shown = [answer[:40] if isinstance(answer, bytes) else answer for answer in answers]
            assert answers[0] == answers[1], f"PEACEFS_SEED={seed}: {step} gave {shown} after {played[-12:]}"
    finally:
        mounted.close()
        judge.close()
    assert mounted.tree() == judge.tree(), f"PEACEFS_SEED={seed}"
    # Another client sees the same after everything is closed.
    published = {
        entry.path.removeprefix(f"{home}/"): None if entry.is_directory else files.read(entry.path)
        for _, directories, found in files.walk(home)
        for entry in (*directories, *found)
    }
    assert published == judge.tree(), f"PEACEFS_SEED={seed}"
