"""The Python client: files, fsspec, the I/O service, the command line, and a cluster on one machine.

Begin with `filesystem.py`, which users import. `transfer/` is the data path, `control/` the calls to the
coordinator. Imports `protocol` and `topology`; never the inside of the coordinator or of a datanode.
"""
