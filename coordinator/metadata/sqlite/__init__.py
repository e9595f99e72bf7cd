"""The metadata store on SQLite: all SQL of the project, its schema, checks and backups.

Begin with `store.py`; `engine.py` is what others see of it. Imported by `metadata.engines` alone, for the service
and the commands; everything else knows `metadata.store`.
"""
