"""Committed metadata: the interface of the store, its records, group commit and epochs.

Begin with `store.py`, the interface, whose methods are in `topics/`, and `model.py`, the records. `engine.py` is
the interface of an engine; all SQL is in `sqlite/`. Nothing here knows a wire.
"""
