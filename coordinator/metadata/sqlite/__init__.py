"""The image of the metadata in SQLite: schema, writing, reading, checks and backups.

Begin with `store.py`. `engine.py` is the interface for other packages. Only `metadata.engines` imports it, for the
service and the commands; all other code uses `metadata.store`.
"""
