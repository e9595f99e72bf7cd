"""The image of the metadata in SQLite: schema, writing, reading, checks and backups.

Begin with `store.py`. Only the service, failover and the commands import it; all other code uses `metadata.store`.
"""
