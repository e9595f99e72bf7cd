"""The Python client: files, fsspec, the I/O service, the command line, and a cluster on one machine.

Begin with `filesystem.py`, which users import. `transfer/` is the data path; `control/` calls the
coordinator. The client imports `protocol` and `topology`, and never the internals of coordinator or datanode.
"""
