"""Services as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def start_service(*arguments: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Starts `peacefs ARGUMENTS`; returns when it is ready, with what it says of itself."""
    ready, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "peacefs", *arguments, f"--ready-fd={theirs}"], pass_fds=[theirs]
    )
    os.close(theirs)
    with os.fdopen(ready) as pipe:
        return process, json.loads(pipe.readline())
