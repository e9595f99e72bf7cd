"""The metadata store on SQLite: all SQL of the project, its schema, checks and backups.

Begin with `store.py`. Imported by the service and the commands alone; everything else knows `metadata.store`.
"""
