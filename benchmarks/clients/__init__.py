"""Compare clients in one run: the ways in which Python and other programs reach one cluster.

Besides our client there are fsspec's `webhdfs`, the package `hdfs`, Hadoop's own client in a JVM, curl, and the
local disk with one copy and an fsync. They handle first one large file and many small ones, then Parquet data sets
as PyArrow, pandas, DuckDB, Polars and Dask read and write them. Missing programs are reported and left out.
"""

from __future__ import annotations

from .datasets import compare_datasets
from .files import compare_files


def main(*, quick: bool = False) -> None:
    compare_files(quick=quick)
    compare_datasets(quick=quick)
