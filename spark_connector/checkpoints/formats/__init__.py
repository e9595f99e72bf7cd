"""Readers of the files in a checkpoint: logs, state-store snapshots and changelogs, codecs, checksums.

Begin with `logs.py`. Bytes in, values out; opens no connection.
"""
