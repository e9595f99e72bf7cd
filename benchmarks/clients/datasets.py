"""Data sets of Parquet through fsspec: `peace://`, fsspec's own `webhdfs://`, and the local disk.

Written by PyArrow in eight files; read whole by PyArrow and pandas, and one column's sum by DuckDB, Polars and, in
two processes, Dask.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

from benchmarks.report import show
from peacefs.client.local_cluster.cluster import LocalCluster

from .ways import LOCAL, peace_of_fsspec, reason_to_be_ahead, webhdfs_of_fsspec

_OURS = "peace://"
_FILES = 8
_PROCESSES = 2
_DATANODES = 3
#: Three columns of eight bytes that do not compress, and one column that does.
_ROW_BYTES = 24


def compare_datasets(*, quick: bool) -> None:
    """Show median seconds. The ways take turns in each round."""
    size, rounds = (64 << 20, 1) if quick else (1 << 30, 2)
    tables = _tables(size // _ROW_BYTES // _FILES)
    wanted = sum(int(table.column("a").to_numpy().astype("int64").sum()) for table in tables)
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(Path(name) / "cluster", datanodes=_DATANODES, port=0) as cluster,
        ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn")) as processes,
    ):
        peace = peace_of_fsspec(cluster)
        ways: dict[str, tuple[Any, str]] = {
            _OURS: (peace, "/sets/peace"),
            "webhdfs:// of fsspec": (webhdfs_of_fsspec(cluster), "/sets/webhdfs"),
            LOCAL: (LocalFileSystem(), f"{name}/sets"),
        }
        actions = _actions(tables, processes)
        figures: dict[tuple[str, str], list[float]] = {}
        for number in range(-1, rounds):
            for action, act in actions.items():
                for way, (fs, top) in ways.items():
                    begun = time.perf_counter()
                    found = act(fs, f"{top}/{number}")
                    # The first round imports libraries and makes connections.
                    if number >= 0:
                        figures.setdefault((action, way), []).append(time.perf_counter() - begun)
                    assert found is None or found == wanted, (action, way, found, wanted)
                print(f"round {number + 2} of {rounds + 1}: {action}", flush=True)
            for fs, top in ways.values():
                fs.rm(f"{top}/{number}", recursive=True)
        peace.files.close()
    rows: list[dict[str, object]] = []
    for action in actions:
        medians = {way: statistics.median(figures[action, way]) for way in ways}
        ahead = [way for way in ways if medians[way] < medians[_OURS]]
        why = "; ".join(reason_to_be_ahead(way, [way]) for way in ahead)
        rows.append({"seconds": action, **medians, "ahead of ours, and why": why})
    show("clients_datasets", f"{size >> 20} MiB of Parquet in {_FILES} files, three replicas, ways in turn", rows)


def _tables(rows: int) -> list[pyarrow.Table]:
    random = numpy.random.default_rng(1)
    return [
        pyarrow.table(
            {
                "a": random.integers(0, 1 << 40, rows),
                "b": random.random(rows),
                "c": random.integers(0, 1 << 62, rows),
                "d": pyarrow.array(numpy.arange(rows) % 7),
            }
        )
        for _ in range(_FILES)
    ]


def _actions(
    tables: list[pyarrow.Table], processes: ProcessPoolExecutor
) -> dict[str, Callable[[Any, str], int | None]]:
    """Return the actions. Each that reads returns the sum of column `a`."""

    def write(fs: Any, top: str) -> None:
        fs.makedirs(top, exist_ok=True)
        for number, table in enumerate(tables):
            with fs.open(f"{top}/{number}.parquet", "wb") as sink:
                pyarrow.parquet.write_table(table, sink)

    def dataset(fs: Any, top: str) -> Any:
        return pyarrow.dataset.dataset(top, filesystem=PyFileSystem(FSSpecHandler(fs)), format="parquet")

    def read_pyarrow(fs: Any, top: str) -> int:
        return int(dataset(fs, top).to_table().column("a").to_numpy().sum())

    def read_pandas(fs: Any, top: str) -> int:
        return int(pandas.read_parquet(top, filesystem=fs)["a"].sum())

    actions: dict[str, Callable[[Any, str], int | None]] = {
        "PyArrow writes": write,
        "PyArrow reads": read_pyarrow,
        "pandas reads": read_pandas,
    }

    def read_duckdb(fs: Any, top: str) -> int:
        with _installed("duckdb").connect() as connection:
            found = fs.find(top)
            if not isinstance(fs, LocalFileSystem):
                connection.register_filesystem(fs)
                protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
                found = [f"{protocol}://{path}" for path in found]
            (total,) = connection.execute("select sum(a) from read_parquet($1)", [found]).fetchone()
            return int(total)

    def read_polars(fs: Any, top: str) -> int:
        polars = _installed("polars")
        return int(polars.scan_pyarrow_dataset(dataset(fs, top)).select(polars.col("a").sum()).collect().item())

    def read_dask(fs: Any, top: str) -> int:
        dask = _installed("dask")
        parts = [dask.delayed(sum_of_a)(fs, path) for path in fs.find(top)]
        return int(sum(dask.compute(*parts, scheduler="processes", pool=processes)))

    for name, title, act in (
        ("duckdb", "DuckDB sums a column", read_duckdb),
        ("polars", "Polars sums a column", read_polars),
        ("dask", "Dask sums a column", read_dask),
    ):
        if importlib.util.find_spec(name):
            actions[title] = act
        else:
            print(f"{name} is not installed: left out", flush=True)
    return actions


def _installed(name: str) -> Any:
    """Import a library that is optional for type checks."""
    return importlib.import_module(name)


def sum_of_a(fs: Any, path: str) -> int:
    """Return the sum of column `a`, in a process of Dask's."""
    with fs.open(path) as source:
        return int(pyarrow.parquet.read_table(source, columns=["a"]).column("a").to_numpy().sum())
