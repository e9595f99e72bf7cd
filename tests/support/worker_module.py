"""Run a module in a forked interpreter, like `python -m`: `worker_module MODULE ARGUMENTS...`."""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
