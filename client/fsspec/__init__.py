"""The file system `peace://` for pandas, pyarrow, Dask and other users of fsspec.

Begin with `filesystem.py`. A thin layer over `client.filesystem`, without a data path of its own.
"""
