"""Metadata: rows in memory, the log that makes changes durable, group commit and epochs.

Begin with `store.py` (the open store), `row_store.py` (its rows) and `model.py` (the records). `reader.py`
and `transaction.py` read and change rows. `log/` has the files of the log; `engine.py` is the interface of an
engine, and `sqlite/` keeps the image. Nothing here depends on a protocol.
"""
