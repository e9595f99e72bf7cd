"""The counting example is killed and continues, with little state."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "counting_state.py"


def test_example_loses_nothing_and_counts_nothing_twice() -> None:
    done = subprocess.run(
        [sys.executable, _EXAMPLE, "--keys=50000", "--seconds=0.5", "--interval=0.15", "--kills=2"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("killed with SIGKILL") == 2
    assert len(re.findall(r"loaded checkpoint \d+, .* none lost, none twice", done.stdout)) == 2
