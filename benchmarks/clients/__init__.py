"""Clients side by side in one run: every way that Python programs, and not only they, have to one cluster.

Beside ours are fsspec's `webhdfs`, the package `hdfs`, Hadoop's own client in a JVM, curl, and the local disk with
one copy and an fsync. First one large file and many small ones, then data sets of Parquet as PyArrow, pandas,
DuckDB, Polars and Dask read and write them. What is not installed is left out, and said.
"""

from __future__ import annotations

from .datasets import compare_datasets
from .files import compare_files


def main(*, quick: bool = False) -> None:
    compare_files(quick=quick)
    compare_datasets(quick=quick)
