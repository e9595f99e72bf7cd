"""The file system `peace://` for pandas, pyarrow, Dask and others that speak fsspec.

Begin with `filesystem.py`. A translation of `client.filesystem`; it has no data path of its own.
"""
