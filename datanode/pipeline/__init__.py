"""The data server: one hop of a write pipeline, and replicas sent to readers.

Begin with `hop.py` and `server.py`. Participants yield effects; threads or a reactor drive them.
"""
