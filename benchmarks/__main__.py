"""Run the benchmarks named on the command line, or all of them: `python -m benchmarks [NAME...] [--quick]`."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

from .report import head_line

_ALL = (
    "idle",
    "write_stream",
    "copies",
    "read_stream",
    "io_service",
    "small_files",
    "small_costs",
    "request_path",
    "request_steps",
    "native_hop",
    "hops",
    "small_reads",
    "metadata_ops",
    "hdfs_names",
    "hdfs_data",
    "namespace_scale",
    "clients",
    "peers",
    "authentication",
    "restart",
    "failover",
    "journal_transports",
    "repair",
    "dead_writers",
    "planning",
    "entered_files",
    "figure10",
    "staggered",
    "beside_bulk",
    "aligned_queries",
    "burst_bounds",
    "scale",
    "snapshots",
    "replay_io",
    "checkpoints",
    "stream_logs",
    "paged_state",
    "state_latency",
    "dataflow",
    "dataflow_spark",
    "nexmark",
    "cec",
    "flux",
    "recovery",
    "recovery_pictures",
    "recovery_costs",
    "ha_table6",
    "ha_table7",
    "ha_table8",
    "ha_figure6",
    "ha_figure7",
    "peer_ring",
    "ring_scale",
    "driver_standby",
    "spark_batches",
    "web_page",
    "mounts",
    "tracing",
)
#: Reproductions of papers' tables and figures, each a module of `papers/`.
_PAPERS = (
    "io_service",
    "figure10",
    "paged_state",
    "state_latency",
    "cec",
    "flux",
    "recovery_costs",
    "peer_ring",
    "ring_scale",
)
#: HA's results that `papers/ha_tables.py` runs. Together they take over an hour, so they run only by name.
_HA_RESULTS = ("ha_table6", "ha_table7", "ha_table8", "ha_figure6", "ha_figure7")
_WITH_FULL = ("figure10", "staggered", "snapshots")
_WITH_CELLS = ("figure10",)
_WITH_SIZE = ("repair", "io_service")
_WITH_FILES = ("metadata_ops", "namespace_scale", "restart", "failover", "checkpoints")
_WITH_NAMES = ("namespace_scale",)
_WITH_RUNS = ("failover", "ring_scale", *_HA_RESULTS)
_WITH_KEPT = ("dead_writers",)
_WITH_TLS = ("write_stream", "read_stream", "small_files", "small_reads", "metadata_ops", "spark_batches")
_WITH_STATE = ("spark_batches",)
_WITH_TECHNIQUE = ("recovery_pictures", "recovery")
_WITH_HOSTS = ("recovery",)
_WITH_ROWS = ("peers", "failover", "nexmark")
_WITH_FILE_SIZE = ("peers",)
_WITH_TREE = ("hops", "small_costs", "request_path", "request_steps")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(_ALL)}; default all but HA's results"
    )
    parser.add_argument("--quick", action="store_true", help="smaller and fewer, to see that they run")
    parser.add_argument("--files", type=int, metavar="N", help=f"existing files, of {' and '.join(_WITH_FILES)}")
    parser.add_argument("--cells", metavar="WxMB,...", help="some groups of bars, as 8x128,16x512, of figure10")
    parser.add_argument("--full", action="store_true", help=f"all of it, of {' and '.join(_WITH_FULL)}")
    sized = " and ".join(_WITH_SIZE)
    parser.add_argument("--gigabytes", type=float, metavar="G", help=f"how much is stored, of {sized}")
    large = " and ".join(_WITH_STATE)
    parser.add_argument(
        "--state-mebibytes", type=int, metavar="N", help=f"how large the large state is, of {large}"
    )
    parser.add_argument("--kept-seconds", type=float, metavar="S", help=f"of {' and '.join(_WITH_KEPT)}")
    parser.add_argument("--tls", action="store_true", help=f"over TLS besides, of {' and '.join(_WITH_TLS)}")
    drawn = " and ".join(_WITH_TECHNIQUE)
    parser.add_argument("--technique", metavar="NAME", help=f"one alone, as upstream-backup, of {drawn}")
    hosted = " and ".join(_WITH_HOSTS)
    parser.add_argument("--hosts", metavar="NAME,...", help=f"some hosts, as processes,spark, of {hosted}")
    parser.add_argument("--publish", action="store_true", help=f"put figures into the page of {hosted}")
    parser.add_argument("--runs", type=int, metavar="N", help=f"how often each, of {' and '.join(_WITH_RUNS)}")
    listed = " and ".join(_WITH_ROWS)
    parser.add_argument("--rows", metavar="NAME,...", help=f"some groups of rows, as names,small, of {listed}")
    measured = " and ".join(_WITH_FILE_SIZE)
    parser.add_argument("--mebibytes", type=int, metavar="N", help=f"how large a large file is, of {measured}")
    chosen = " and ".join(_WITH_NAMES)
    laws = parser.add_mutually_exclusive_group()
    for each in ("uniform", "zipf"):
        laws.add_argument(f"--{each}", action="store_const", const=each, dest="law", help=f"names, of {chosen}")
    parser.add_argument("--json", action="store_true", help=f"print JSON, of {chosen}")
    trees = " and ".join(_WITH_TREE)
    parser.add_argument("--against", type=Path, metavar="TREE", help=f"another checkout beside this, of {trees}")
    options = parser.parse_args()
    unknown = set(options.names) - set(_ALL)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(_ALL)}")
    print(f"== {head_line()}", flush=True)
    for name in options.names or [name for name in _ALL if name not in _HA_RESULTS]:
        print(f"== {name}", flush=True)
        files = {"files": options.files} if options.files is not None and name in _WITH_FILES else {}
        full = {"full": True} if options.full and name in _WITH_FULL else {}
        size = {"gigabytes": options.gigabytes} if options.gigabytes is not None and name in _WITH_SIZE else {}
        state = {"state_mebibytes": options.state_mebibytes} if name in _WITH_STATE else {}
        kept = {"kept_s": options.kept_seconds} if name in _WITH_KEPT else {}
        cells = {"cells": options.cells} if options.cells and name in _WITH_CELLS else {}
        tls = {"tls": True} if options.tls and name in _WITH_TLS else {}
        runs = {"runs": options.runs} if options.runs is not None and name in _WITH_RUNS else {}
        technique = {"technique": options.technique} if options.technique and name in _WITH_TECHNIQUE else {}
        hosts = {"hosts": options.hosts, "publish": options.publish} if name in _WITH_HOSTS else {}
        file_size = (
            {"mebibytes": options.mebibytes} if options.mebibytes is not None and name in _WITH_FILE_SIZE else {}
        )
        rows = {"rows": options.rows.split(",")} if options.rows and name in _WITH_ROWS else {}
        law = {"distribution": options.law, "as_json": options.json} if name in _WITH_NAMES else {}
        tree = {"against": options.against} if options.against is not None and name in _WITH_TREE else {}
        result = {"result": name} if name in _HA_RESULTS else {}
        _module(name).main(
            **result,
            quick=options.quick,
            **files,
            **full,
            **cells,
            **size,
            **state,
            **kept,
            **tls,
            **technique,
            **hosts,
            **runs,
            **rows,
            **file_size,
            **law,
            **tree,
        )


def _module(name: str) -> ModuleType:
    if name in _HA_RESULTS:
        return importlib.import_module("benchmarks.papers.ha_tables")
    return importlib.import_module(f"benchmarks.papers.{name}" if name in _PAPERS else f"benchmarks.{name}")


if __name__ == "__main__":
    main()
