"""The replicated journal: each commit of the metadata as one entry, before it is acknowledged (decision 47).

Begin with `port.py`, which says what a journal promises. `etcd.py` keeps one in etcd, `memory.py` is its twin for
tests and seeds, `address.py` reads what `--journal` names. Knows no metadata and no SQL: entries are bytes here.
"""
