"""The replicated journal: each commit of the metadata becomes an entry before it is acknowledged (decision 47).

Begin with `port.py`, the interface and what it guarantees. `etcd.py` keeps a journal in etcd; `memory.py` is its
twin for tests and simulations; `address.py` parses `--journal`. Entries are bytes here: this package knows neither
metadata nor SQL.
"""
