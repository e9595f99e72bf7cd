"""Runs the benchmarks named on the command line, or all of them: `python -m benchmarks [NAME...] [--quick]`."""

from __future__ import annotations

import argparse
import importlib

_ALL = ("idle", "write_stream", "small_files", "planning", "spark_batches")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(_ALL)}; default all")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer, to see that they run")
    options = parser.parse_args()
    unknown = set(options.names) - set(_ALL)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(_ALL)}")
    for name in options.names or _ALL:
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main(quick=options.quick)


if __name__ == "__main__":
    main()
