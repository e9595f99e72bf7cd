"""Committed metadata: the interface of the store, its records, group commit and epochs.

Begin with `store.py`, the interface, and `model.py`, the records. All SQL is in `sqlite/`; nothing here knows a
wire.
"""
