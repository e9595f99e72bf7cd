"""Services as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from peacefs.client.local_cluster.member_process import PEACEFS

ROOT = Path(__file__).parents[2]


def start_service(
    *arguments: str, program: Sequence[str] = PEACEFS
) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Start `peacefs ARGUMENTS`, or another program; return when it is ready, with its announcement."""
    ready, theirs = os.pipe()
    process = subprocess.Popen([*program, *arguments, f"--ready-fd={theirs}"], cwd=ROOT, pass_fds=[theirs])
    os.close(theirs)
    with os.fdopen(ready) as pipe:
        return process, json.loads(pipe.readline())
