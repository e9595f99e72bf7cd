"""Record when functions of the product are entered, in any process with this directory on its path.

Python imports a module of this name at start-up. The record is written when the process ends, to the directory
that the environment names.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

_TICKS_PER_S = 10_000
_PACKAGES = ("coordinator", "datanode", "protocol", "runtime", "service", "client", "peace", "topology")


class Recorder:
    """The tracer of one process. Threads write to one dictionary; a lost update does not matter."""

    def __init__(self, product: str) -> None:
        self._roots = tuple(f"{product}/{package}/" for package in _PACKAGES)
        self._root_length = len(product) + 1
        self._names: dict[object, str | None] = {}
        self._times: dict[str, list[int]] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        name = self._names.get(code, "")
        if name == "":
            name = self._names[code] = self._name(code.co_filename, code.co_qualname, code.co_flags)
        if name is None:
            return
        now = int(time.monotonic() * _TICKS_PER_S)
        times = self._times.setdefault(name, [])
        if not times or times[-1] != now:
            times.append(now)

    def _name(self, file: str, function: str, flags: int) -> str | None:
        """Return the function's name; None for other code, and for bodies of modules and classes, which an import
        runs.
        """
        file = os.path.realpath(file)
        if not file.startswith(self._roots) or not flags & inspect.CO_OPTIMIZED:
            return None
        return f"{file[self._root_length :]}:{function}"

    def write(self, directory: Path) -> None:
        sys.setprofile(None)
        content = json.dumps({"ticks_per_s": _TICKS_PER_S, "times": self._times})
        (directory / f"{os.getpid()}.json").write_text(content)


if directory := os.environ.get("PEACEFS_ENTERED_DIRECTORY"):
    recorder = Recorder(str(Path(__file__).resolve().parents[2]))
    atexit.register(recorder.write, Path(directory))
    threading.setprofile(recorder)
    sys.setprofile(recorder)
