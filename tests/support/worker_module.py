"""Run a module in an interpreter that was forked, as `python -m` would: `worker_module MODULE ARGUMENTS...`."""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    del sys.argv[0]
    # Spark names archives of its own modules, which are imported already, and directories of the query's.
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path += [path for path in named if path and path not in sys.path]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
