"""Parsers for the files in a checkpoint: logs, state-store snapshots and changelogs, codecs, checksums.

Begin with `logs.py`. Parsers take bytes and return values; they open no connection.
"""
