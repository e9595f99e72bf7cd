"""The image of the metadata in SQLite: its schema, what writes and reads it, checks and backups.

Begin with `store.py`; `engine.py` is what others see of it. Imported by `metadata.engines` alone, for the service
and the commands; everything else knows `metadata.store`.
"""
